"""How many containers a function has, which are given back, and what follows when they fail to start."""

import pytest
from levers9_test_deciding import spec_of
from levers9_test_tasks import Stage, delivered, told

from levers9.actors.counts import Counts
from levers9.actors.tasks import TasksPolicy
from levers9.actors.tasks.demand import COMING_MAX, containers_wanted
from levers9.model.figures import CRASH_LOOP_FAILURES
from levers9.model.states import ContainerState, End, TaskState
from levers9.store import operations as ops
from levers9.store.operations import rows_of
from levers9.wire import client, scheduling
from levers9.wire.letter import Letter


def released(sent: list[object]) -> list[str]:
    return [container_id for message in sent.of(scheduling.ReleaseContainers) for container_id in message.container_ids]  # type: ignore[attr-defined]


class TestDemand:
    def test_no_backlog_wants_nothing(self) -> None:
        assert containers_wanted(0, 1.0, 0.0, 0) == 0

    def test_short_calls_want_one_and_long_ones_one_each(self) -> None:
        assert containers_wanted(10, 0.01, 0.0, 0) == 1
        assert containers_wanted(10, 60.0, 0.0, 0) == 10

    def test_while_nothing_is_known_few_are_wanted_and_more_as_the_first_call_takes_long(self) -> None:
        assert containers_wanted(1000, None, 0.0, 0) == 8
        assert containers_wanted(1000, None, 0.4, 0) == 8
        assert containers_wanted(1000, None, 5.0, 0) == 1000

    def test_a_call_that_lasts_longer_than_those_before_wants_more_for_those_behind_it(self) -> None:
        assert containers_wanted(2, 0.2, 0.1, 0) == 1
        assert containers_wanted(2, 0.2, 1.0, 0) == 2

    def test_nobody_waits_behind_a_long_call_because_earlier_ones_were_short(self) -> None:
        stage = Stage()
        stage.submit("short")
        container_id, _ = stage.warm()
        stage.say(stage.finished(container_id, "short", duration_s=0.2))
        stage.submit("long", "behind")
        stage.tick(2.0)
        assert len(stage.requested()) == 1

    def test_a_limit_holds(self) -> None:
        assert containers_wanted(10, 60.0, 0.0, 3) == 3

    def test_requests_are_rows_before_they_are_asked_for(self) -> None:
        stage = Stage()
        sent = stage.submit("a")
        request = sent.only(scheduling.RequestContainers)
        rows = rows_of(stage.truth.ask(ops.LoadContainers()), ops.ContainerRow)
        assert [(row.container_id, row.state) for row in rows] == [(request.container_ids[0], ContainerState.REQUESTED)]

    def test_a_call_that_takes_long_brings_more_containers_as_time_passes(self) -> None:
        stage = Stage()
        stage.submit(*(f"t{number}" for number in range(10)))
        assert len(stage.requested()) == 1
        stage.warm()
        stage.tick(2.0)
        assert len(stage.requested()) == 9

    def test_calls_that_fail_quickly_teach_how_long_calls_take(self) -> None:
        stage = Stage()
        stage.submit(*(f"t{number}" for number in range(10)))
        container_id, _ = stage.warm()
        stage.now_s += 20.0
        stage.say(stage.finished(container_id, "t0", End.ERROR, duration_s=0.001))
        stage.tick()
        assert stage.requested() == []

    def test_a_moving_mean_is_kept_of_durations(self) -> None:
        stage = Stage()
        stage.submit("a", "b")
        container_id, _ = stage.warm(window=2)
        stage.say(stage.finished(container_id, "a", duration_s=1.0))
        stage.say(stage.finished(container_id, "b", duration_s=2.0))
        assert stage.policy.ledger.stubs[stage.stub].mean_s == pytest.approx(1.2)

    def test_not_more_are_on_their_way_than_could_be_placed_soon(self) -> None:
        stage = Stage()
        stage.submit(*(f"t{number}" for number in range(1000)))
        stage.warm()
        stage.tick(600.0)
        assert len(stage.requested()) == COMING_MAX
        stage.tick(1.0)
        assert len(stage.requested()) == COMING_MAX


class TestIdle:
    def test_a_container_that_stands_idle_is_given_back_after_its_time(self) -> None:
        stage = Stage(keep_warm_s=10.0)
        stage.submit("a")
        container_id, _ = stage.warm()
        assert released(stage.tick(60.0)) == []
        stage.say(stage.finished(container_id, "a"))
        assert released(stage.tick(9.0)) == []
        assert released(stage.tick(1.0)) == [container_id]
        assert released(stage.tick(1.0)) == []

    def test_a_released_container_gets_no_call_any_more(self) -> None:
        stage = Stage(keep_warm_s=0.0)
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.finished(container_id, "a"))
        stage.tick()
        sent = stage.submit("b")
        assert delivered(sent) == []
        assert len(sent.only(scheduling.RequestContainers).container_ids) == 1
        assert delivered(stage.say(stage.available(container_id, 5))) == []
        assert stage.policy.ledger.stubs[stage.stub].available == 0

    def test_a_request_is_given_back_when_nobody_waits_any_more(self) -> None:
        stage = Stage()
        stage.submit("a")
        (container_id,) = stage.requested()
        stage.say(stage.cancellation("a"))
        assert released(stage.tick()) == [container_id]

    def test_what_stands_idle_is_given_back_at_once_where_others_wait_for_room(self) -> None:
        stage = Stage(keep_warm_s=60.0)
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.finished(container_id, "a"))
        assert released(stage.tick()) == []
        other = stage.register(spec_of("g"))
        stage.say(stage.submission("b", stub=other))
        stage.say(Letter(scheduling.ContainerHeld(stub_id=other, why="no room."), source="scheduler"))
        assert released(stage.tick()) == [container_id]

    def test_a_silent_workers_containers_have_no_credits_and_keep_their_calls(self) -> None:
        stage = Stage()
        stage.submit("a", "b")
        container_id, _ = stage.warm(window=1)
        stage.say(stage.available(container_id, 0))
        assert delivered(stage.tick(10.0)) == []
        assert list(stage.policy.ledger.containers[container_id].holding) == ["a"]
        assert delivered(stage.say(stage.available(container_id, 2))) == [("b", 1)]


class TestExpiry:
    def test_a_call_that_no_machine_came_for_expires(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        stage.say(stage.held("no room."))
        stage.now_s += 3.0
        stage.submit("b")
        assert told(stage.tick(1.9)) == {}
        assert told(stage.tick(0.1)) == {"a": "EXPIRED"}
        assert stage.truth.state("a") is TaskState.EXPIRED
        assert told(stage.tick(3.0)) == {"b": "EXPIRED"}

    def test_time_counts_only_while_nothing_but_missing_machines_holds_it(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        assert told(stage.tick(60.0)) == {}  # nobody says yet that there is no room
        stage.say(stage.held("no room."))
        stage.tick(3.0)
        stage.say(stage.held("no room. Pool p backs off.", machines_only=False))
        assert told(stage.tick(60.0)) == {}
        stage.say(stage.held(""))  # it was placed, and loads its code
        assert told(stage.tick(60.0)) == {}
        stage.say(stage.held("no room."))
        assert told(stage.tick(1.9)) == {}
        assert told(stage.tick(0.1)) == {"a": "EXPIRED"}

    def test_the_time_for_which_a_stub_is_blocked_does_not_count(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        stage.say(stage.held("no room."))
        for _ in range(CRASH_LOOP_FAILURES):
            stage.say(stage.gone(stage.requested()[0], End.ERROR))
        blocked_s = stage.policy.ledger.stubs[stage.stub].blocked_until_s - stage.now_s
        assert told(stage.tick(blocked_s)) == {}
        assert told(stage.tick(4.9)) == {}
        assert told(stage.tick(0.1)) == {"a": "EXPIRED"}

    def test_with_a_warm_container_it_waits_on(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a", "b")
        stage.say(stage.held("no room."))
        stage.warm()
        assert told(stage.tick(60.0)) == {}

    def test_a_retry_waits_anew(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        stage.say(stage.held("no room."))
        stage.tick(4.0)
        container_id, _ = stage.warm()
        stage.tick(3600.0)
        stage.say(stage.gone(container_id))
        assert told(stage.tick(4.9)) == {}
        assert told(stage.tick(0.1)) == {"a": "EXPIRED"}

    def test_a_new_reign_counts_from_when_it_knows_that_there_is_no_room(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        stage.say(stage.held("no room."))
        stage.tick(4.0)
        stage.restart()
        stage.watch("a")
        assert told(stage.tick(15.0)) == {}
        stage.say(stage.held("no room."))
        assert told(stage.tick(4.9)) == {}
        assert told(stage.tick(0.1)) == {"a": "EXPIRED"}

    def test_a_retry_that_expires_in_its_own_group_has_ended_with_its_attempt(self) -> None:
        stage = Stage(wait_s=5.0)
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.policy.handle(stage.gone(container_id), stage.now_s)
        stage.policy.handle(stage.held("no room."), stage.now_s)
        stage.policy.tick(stage.now_s + 6.0)
        assert told(stage.say()) == {"a": "EXPIRED"}
        row = stage.truth.task("a")
        assert (row.state, row.attempt) == (TaskState.EXPIRED, 1)
        assert [row.end for row in rows_of(stage.truth.ask(ops.ListAttempts(task_id="a")), ops.AttemptRow)] == [
            End.DISCONNECTED
        ]


class TestGone:
    def test_what_it_held_runs_elsewhere_and_uses_a_retry(self) -> None:
        stage = Stage(retries=0)
        stage.submit("a")
        container_id, _ = stage.warm()
        sent = stage.say(stage.gone(container_id, End.KILLED, "signal 9"))
        (result,) = sent.only(client.TasksFinished).results
        assert result.failure is not None
        assert (result.failure.code, result.failure.why) == ("killed", "signal 9")

    def test_after_the_results_of_its_attempts_it_takes_nothing_with_it(self) -> None:
        stage = Stage(retries=0)
        stage.submit("a")
        container_id, _ = stage.warm()
        letters = [stage.finished(container_id, "a"), stage.gone(container_id)]
        assert told(stage.say(*letters)) == {"a": "COMPLETE"}

    def test_heard_twice_it_is_heard_once(self) -> None:
        stage = Stage()
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.gone(container_id), stage.gone(container_id))
        assert stage.truth.task("a").retries_used == 1

    def test_a_container_that_nobody_asked_for_is_given_back(self) -> None:
        stage = Stage()
        message = scheduling.ContainerAvailable(container_id="c", stub_id=stage.stub, worker_id="one", window=1)
        sent = stage.say(Letter(message, source="scheduler"))
        assert released(sent) == ["c"]


class TestFailedStarts:
    def fail(self, stage: Stage, end: End = End.KILLED) -> None:
        stage.say(stage.gone(stage.requested()[0], end, "because"))

    def test_after_three_in_a_row_the_next_waits_a_minute_then_two(self) -> None:
        stage = Stage()
        stage.submit("a")
        for _ in range(3):
            self.fail(stage)
        assert stage.requested() == []
        assert "failed to start 3 times in a row; next try in 60 s. because" in stage.why("a")
        stage.tick(59.0)
        assert stage.requested() == []
        stage.tick(1.0)
        self.fail(stage)
        stage.tick(119.0)
        assert stage.requested() == []
        stage.tick(1.0)
        assert len(stage.requested()) == 1
        assert stage.truth.state("a") is TaskState.PENDING

    def test_it_never_waits_longer_than_an_hour(self) -> None:
        stage = Stage()
        stage.submit("a")
        for _ in range(30):
            if stage.requested():
                self.fail(stage)
            stage.tick(3600.0)
        stub = stage.policy.ledger.stubs[stage.stub]
        assert stub.blocked_until_s - stage.now_s <= 3600.0

    def test_those_that_were_asked_for_together_fail_together(self) -> None:
        stage = Stage()
        stage.submit(*(f"t{number}" for number in range(1000)))
        assert len(stage.requested()) == 8
        stage.say(*(stage.gone(container_id, End.ERROR) for container_id in stage.requested()))
        assert stage.policy.ledger.stubs[stage.stub].failed_starts == 3
        stage.tick(60.0)
        assert len(stage.requested()) == 1

    @pytest.mark.parametrize("end", [End.APP_FAILED_TO_LOAD, End.IMAGE_INVALID, End.REFUSED])
    def test_code_that_does_not_load_fails_the_calls_that_wait(self, end: End) -> None:
        stage = Stage()
        stage.submit("a")
        for _ in range(2):
            self.fail(stage, end)
        (container_id,) = stage.requested()
        sent = stage.say(stage.gone(container_id, end, "No module named pandas"))
        (result,) = sent.only(client.TasksFinished).results
        assert result.state is TaskState.ERROR
        assert result.failure is not None
        assert result.failure.code == end.value.replace(" ", "_")
        assert result.failure.why == "No module named pandas"
        assert stage.truth.state("a") is TaskState.ERROR

    def test_whoever_calls_again_gets_one_more_try(self) -> None:
        stage = Stage()
        stage.submit("a")
        for _ in range(3):
            self.fail(stage, End.APP_FAILED_TO_LOAD)
        stage.submit("b")
        self.fail(stage, End.APP_FAILED_TO_LOAD)
        assert stage.truth.state("b") is TaskState.ERROR
        stage.submit("c")
        container_id, _ = stage.warm()
        assert told(stage.say(stage.finished(container_id, "c"))) == {"c": "COMPLETE"}
        assert stage.policy.ledger.stubs[stage.stub].failed_starts == 0

    def test_a_container_that_loads_and_dies_without_running_a_line_counts(self) -> None:
        stage = Stage(retries=0)
        stage.submit("a")
        for attempt in range(1, 4):
            container_id, sent = stage.warm()
            assert delivered(sent) == [("a", attempt)]
            stage.say(stage.finished(container_id, "a", End.DISCONNECTED, attempt=attempt, started=False, window=0))
            stage.say(stage.gone(container_id, End.OK))
        assert stage.requested() == []
        assert stage.policy.ledger.stubs[stage.stub].blocked_until_s == stage.now_s + 60.0

    @pytest.mark.parametrize("end", [End.DISCONNECTED, End.CANCELLED])
    def test_a_lost_worker_says_nothing_of_the_code(self, end: End) -> None:
        stage = Stage()
        stage.submit("a")
        for _ in range(9):
            self.fail(stage, end)
        assert len(stage.requested()) == 1

    def test_a_retry_that_fails_with_the_others_has_ended_with_its_attempt(self) -> None:
        stage = Stage()
        stage.submit("a")
        first, _ = stage.warm()
        stage.tick(2.0)
        stage.submit(*(f"t{number}" for number in range(3)))
        failing = stage.requested()
        assert len(failing) >= 3
        letters = [stage.gone(container_id, End.APP_FAILED_TO_LOAD) for container_id in failing]
        sent = stage.say(stage.gone(first, End.KILLED), *letters)
        assert told(sent) == {"a": "ERROR", "t0": "ERROR", "t1": "ERROR", "t2": "ERROR"}
        assert stage.truth.state("a") is TaskState.ERROR


class TestCounts:
    def test_calls_are_counted_once_they_are_committed(self) -> None:
        stage = Stage(retries=0)
        counts = Counts()
        stage.policy = TasksPolicy(stage.new_id, counts)
        stage.stub = stage.register(spec_of(retries=0))
        stage.submit("a", "b")
        stage.submit("a", "b")
        container_id, _ = stage.warm(window=2)
        stage.say(stage.finished(container_id, "a"))
        assert (counts.tasks_accepted, counts.tasks_finished, counts.tasks_failed) == (2, 1, 0)
        stage.say(stage.gone(container_id))
        assert (counts.tasks_accepted, counts.tasks_finished, counts.tasks_failed) == (2, 2, 1)
