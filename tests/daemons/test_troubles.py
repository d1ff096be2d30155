"""What a person is told of processes that do not come up."""

from __future__ import annotations

from levers9.daemons.troubles import STEADY_S, Troubles
from levers9.wire.control import ChildStanding

LOCKED = (
    '2026-11-30 21:31:27.560 UTC [13302] FATAL:  lock file "postmaster.pid" already exists',
    "2026-11-30 21:31:27.560 UTC [13302] HINT:  Is another postmaster (PID 9) running?",
    "2026-11-30 21:31:27.586 UTC [13302] LOG:  database system is shut down",
)
TOLD = (
    'postgres does not stay up (2 tries): lock file "postmaster.pid" already exists; Is another postmaster (PID 9) '
    "running? Mend that: it is started again by itself, at the latest after 30 s."
)


def child(name: str, restarts: int, state: str = "running", why: str = "") -> ChildStanding:
    return ChildStanding(path=f"root/{name}", kind="process", state=state, restarts=restarts, last_failure=why)


def test_a_process_that_fails_twice_is_told_once_with_what_it_said_last() -> None:
    troubles = Troubles()
    for line in LOCKED * 2:
        troubles.heard("postgres", line)
    assert troubles.look([child("postgres", 1, "waiting")], 1.0) == ()
    assert troubles.look([child("postgres", 2, "waiting")], 2.0) == (TOLD,)
    assert troubles.look([child("postgres", 3, "waiting")], 60.0) == ()


def test_it_is_told_when_it_has_been_up_for_a_while_and_what_comes_later_is_told_anew() -> None:
    troubles = Troubles()
    assert len(troubles.look([child("postgres", 2, "waiting")], 2.0)) == 1
    assert troubles.look([child("postgres", 3)], 10.0) == ()
    assert troubles.look([child("postgres", 3)], 10.0 + STEADY_S) == ("postgres runs again.",)
    assert troubles.look([child("postgres", 4)], 100.0) == ()
    assert len(troubles.look([child("postgres", 5)], 101.0)) == 1


def test_of_those_who_wait_for_the_one_that_fails_nothing_is_told() -> None:
    troubles = Troubles()
    (said,) = troubles.look([child("postgres", 2, "waiting"), child("gateway-0", 7, "starting")], 2.0)
    assert said.startswith("postgres does not stay up")
    tree = [child("postgres", 3), child("gateway-0", 9, "starting")]
    assert troubles.look(tree, 3.0) == ()
    up_again, gateway = troubles.look(tree, 3.0 + STEADY_S)
    assert up_again == "postgres runs again."
    assert gateway.startswith("gateway-0 does not stay up")


def test_where_it_said_nothing_its_ending_is_told() -> None:
    troubles = Troubles()
    why = "ChildFailed: /usr/bin/python: it was ended by SIGKILL"
    (said,) = troubles.look([child("brain", 2, "waiting", why)], 2.0)
    assert said.startswith("brain does not stay up (2 tries): it was ended by SIGKILL. Mend")
    refused = "Refused: The embedded Postgres could not be prepared. Free that."
    (said,) = Troubles().look([child("postgres", 2, "waiting", refused)], 2.0)
    assert "2 tries): The embedded Postgres could not be prepared. Free that. Mend" in said


def test_a_process_that_crashes_now_and_then_is_in_its_log_only() -> None:
    troubles = Troubles()
    for restarts in range(1, 9):
        at_s = restarts * 60.0
        assert troubles.look([child("brain", restarts)], at_s) == ()
        assert troubles.look([child("brain", restarts)], at_s + STEADY_S) == ()


def test_words_of_a_life_that_went_well_are_not_those_of_a_failure() -> None:
    troubles = Troubles()
    troubles.heard("brain", "all is well")
    assert troubles.look([child("brain", 0)], STEADY_S) == ()
    troubles.heard("brain", "\x1b[31mno room\x1b[0m")
    (said,) = troubles.look([child("brain", 2, "waiting", "ChildFailed: x: it exited with 1")], 7.0)
    assert "(2 tries): no room. Mend" in said
