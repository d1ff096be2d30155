from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.supervision import Backoff, Ending, GiveUp, Intensity, Lifetime, Restart, Stop, Terms, judge

TERMS = Terms(backoff=Backoff(min_s=1.0, max_s=8.0, jitter=0.5, reset_after_s=60.0), intensity=Intensity(100, 60.0))


def ending(child: str = "a", at_s: float = 0.0, lived_s: float = 0.0, *, crashed: bool = True) -> Ending:
    return Ending(child, at_s, "ValueError: no", crashed, lived_s)


def terms(lifetime: Lifetime) -> Terms:
    return Terms(restart=lifetime)


@pytest.mark.parametrize(
    ("lifetime", "crashed", "comes_back"),
    [
        (Lifetime.PERMANENT, True, True),
        (Lifetime.PERMANENT, False, True),
        (Lifetime.TRANSIENT, True, True),
        (Lifetime.TRANSIENT, False, False),
        (Lifetime.TEMPORARY, True, False),
        (Lifetime.TEMPORARY, False, False),
    ],
)
def test_who_comes_back(lifetime: Lifetime, crashed: bool, comes_back: bool) -> None:
    verdict = judge(0.0, (ending(crashed=crashed),), terms(lifetime))
    assert isinstance(verdict, Restart if comes_back else Stop)


def test_the_wait_doubles_up_to_a_maximum() -> None:
    history: tuple[Ending, ...] = ()
    waits = []
    for number in range(6):
        history = (*history, ending(at_s=float(number)))
        waits.append(judge(float(number), history, TERMS))
    assert waits == [Restart(1.0), Restart(2.0), Restart(4.0), Restart(8.0), Restart(8.0), Restart(8.0)]


def test_health_makes_the_wait_short_again() -> None:
    history = (ending(at_s=1), ending(at_s=2), ending(at_s=70, lived_s=60.0))
    assert judge(70, history, TERMS) == Restart(1.0)
    assert judge(71, (*history, ending(at_s=71)), TERMS) == Restart(2.0)


def test_the_failures_of_others_do_not_lengthen_the_wait() -> None:
    assert judge(3, (ending("b"), ending("b"), ending("b"), ending("a")), TERMS) == Restart(1.0)


def test_jitter_takes_off_at_most_its_share() -> None:
    assert judge(0, (ending(),), TERMS, chance=1.0) == Restart(0.5)


def test_the_failure_after_too_many_restarts_is_the_last() -> None:
    hard = Terms(intensity=Intensity(restarts=2, within_s=10))
    history = tuple(ending(at_s=float(number)) for number in range(3))
    assert isinstance(judge(1, history[:2], hard), Restart)
    assert judge(2, history, hard) == GiveUp(tuple(each.sentence() for each in history))


def test_failures_that_are_long_ago_do_not_count() -> None:
    hard = Terms(intensity=Intensity(restarts=2, within_s=10))
    history = tuple(ending(at_s=at) for at in (0.0, 1.0, 10.5))
    assert isinstance(judge(10.5, history, hard), Restart)


def test_the_intensity_counts_the_failures_of_all_children() -> None:
    hard = Terms(intensity=Intensity(restarts=2, within_s=10))
    assert isinstance(judge(3, (ending("a"), ending("b"), ending("c")), hard), GiveUp)


def test_an_ending_is_told_in_a_sentence() -> None:
    assert ending(lived_s=2.04).sentence() == "a crashed after 2.0 s: ValueError: no"
    assert ending(crashed=False).sentence() == "a ended after 0.0 s: ValueError: no"


endings = st.builds(
    Ending,
    child=st.sampled_from(["a", "b"]),
    at_s=st.floats(0, 1_000),
    why=st.just("x"),
    crashed=st.booleans(),
    lived_s=st.floats(0, 1_000),
)
histories = st.lists(endings, min_size=1, max_size=200).map(lambda each: tuple(sorted(each, key=lambda one: one.at_s)))
backoffs = st.builds(
    Backoff,
    min_s=st.floats(0.001, 5),
    max_s=st.floats(5, 60),
    jitter=st.floats(0, 1),
    reset_after_s=st.floats(0.1, 100),
)
all_terms = st.builds(
    Terms,
    restart=st.sampled_from(Lifetime),
    backoff=backoffs,
    intensity=st.builds(Intensity, restarts=st.integers(0, 20), within_s=st.floats(0.1, 100)),
)


@given(histories, all_terms, st.floats(0, 1, exclude_max=True))
def test_whatever_happened_the_wait_lies_within_its_bounds(
    history: tuple[Ending, ...], agreed: Terms, chance: float
) -> None:
    verdict = judge(history[-1].at_s, history, agreed, chance)
    if isinstance(verdict, Restart):
        least = agreed.backoff.min_s * (1 - agreed.backoff.jitter)
        assert least * 0.999 <= verdict.after_s <= agreed.backoff.max_s


@given(histories, all_terms)
def test_whatever_happened_it_gives_up_exactly_when_the_window_is_full(
    history: tuple[Ending, ...], agreed: Terms
) -> None:
    now = history[-1].at_s
    recent = [each for each in history if now - agreed.intensity.within_s < each.at_s]
    verdict = judge(now, history, agreed)
    assert isinstance(verdict, Stop) or isinstance(verdict, GiveUp) == (len(recent) > agreed.intensity.restarts)


@given(histories, all_terms)
def test_one_more_failure_never_shortens_the_wait(history: tuple[Ending, ...], agreed: Terms) -> None:
    last = history[-1]
    again = Ending(last.child, last.at_s, "x", True, 0.0)
    before, after = judge(last.at_s, history, agreed), judge(last.at_s, (*history, again), agreed)
    if isinstance(before, Restart) and isinstance(after, Restart):
        assert after.after_s >= before.after_s
