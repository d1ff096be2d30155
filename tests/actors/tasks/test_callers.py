"""What callers may say, and what they hear."""

import pytest
from levers9_test_deciding import spec_of
from levers9_test_tasks import ME, Stage, delivered, told
from msgspec import structs

from levers9.actors.tasks import callers
from levers9.actors.tasks.actor import offers_of
from levers9.model.feasibility import PoolOffer, PoolTerms
from levers9.model.queues import Flavor, FlavorLimits, Limits, Queueing, Quota, Share
from levers9.model.resources import Capacity, Shape
from levers9.model.states import End, TaskState
from levers9.store import operations as ops
from levers9.wire import client, scheduling, work
from levers9.wire.letter import Letter

OTHER = "client/other"


def refusal(stage: Stage, letter: Letter) -> str:
    return stage.say(letter).only(client.RequestRefused).failure.code


def test_the_same_function_in_the_same_workspace_is_registered_once() -> None:
    stage = Stage()
    assert stage.register(spec_of()) == stage.stub
    assert stage.register(spec_of(), workspace="v") != stage.stub
    assert stage.register(spec_of("g")) != stage.stub
    assert len(stage.truth.tables.stubs) == 3


def test_a_function_that_fits_no_pool_is_refused_at_once() -> None:
    stage = Stage()
    stage.policy.offer((PoolOffer(pool="default", largest=Capacity(cpu_milli=100, memory_mib=100)),))
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec_of("large")))) == "never_fits"


def test_a_gang_that_fits_no_pool_is_refused_at_once() -> None:
    stage = Stage()
    size = Capacity(cpu_milli=1000, memory_mib=1000)
    stage.policy.offer((PoolOffer(pool="default", largest=size, max_workers=1),))
    shape = Shape(cpu_milli=600, memory_mib=10)
    stage.register(spec_of("one", shape=shape))
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec_of("two", shape=shape, nodes=2)))) == "never_fits"


def test_a_function_for_which_there_could_never_be_quota_is_refused_at_once() -> None:
    stage = Stage()
    tiny = Quota(name="default", flavors=(FlavorLimits(flavor="any", cpu=Limits(nominal=1)),))
    stage.policy.offer((), Queueing(flavors=(Flavor(name="any"),), quotas=(tiny,)))
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec_of("g")))) == "never_fits"
    stage.policy.offer((), Queueing())
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec_of("g", queue="none")))) == "not_found"
    stage.register(spec_of("g"))


def test_a_gang_of_more_than_its_workspace_may_run_at_a_time_is_refused_at_once() -> None:
    stage = Stage()
    letter = stage.letter(client.RegisterStub(spec=spec_of("two", nodes=2)))
    stage.policy.offer((), Queueing(shares=(Share(workspace=letter.workspace, max_containers=1),)))
    stage.register(spec_of("one"))
    assert refusal(stage, letter) == "never_fits"


@pytest.mark.parametrize("wrong", [{"timeout_s": -1.0}, {"retries": -1}, {"max_containers": -1}, {"wait_s": -0.5}])
def test_a_number_below_zero_is_refused(wrong: dict[str, float]) -> None:
    stage = Stage()
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec_of("g", **wrong)))) == "invalid"


def test_a_shape_that_would_make_room_is_refused() -> None:
    stage = Stage()
    spec = spec_of("g", shape=Shape(cpu_milli=-5, memory_mib=10))
    assert refusal(stage, stage.letter(client.RegisterStub(spec=spec))) == "invalid"


def test_a_call_is_committed_before_it_is_accepted() -> None:
    stage = Stage()
    sent = stage.submit("a", "b")
    assert sent.only(client.TasksAccepted).task_ids == ("a", "b")
    assert stage.truth.state("a") is TaskState.PENDING
    assert [send.correlation for send in sent if send.target == ME] == ["question"]


def test_that_calls_are_accepted_comes_with_their_results_or_with_the_next_tick() -> None:
    stage = Stage()
    assert stage.say(stage.submission("a")).of(client.TasksAccepted) == []
    assert stage.tick().only(client.TasksAccepted).task_ids == ("a",)
    container_id, _ = stage.warm(window=8)
    assert stage.say(stage.submission("b")).of(client.TasksAccepted) == []
    sent = stage.say(stage.finished(container_id, "a"))
    assert sent.only(client.TasksAccepted).task_ids == ("b",)
    assert stage.tick().of(client.TasksAccepted) == []


def test_a_call_that_is_submitted_twice_runs_once_and_both_callers_hear() -> None:
    stage = Stage()
    stage.submit("a")
    sent = stage.hear(stage.submission("a", "a", source=OTHER))
    assert sent.only(client.TasksAccepted).task_ids == ("a", "a")
    container_id, sent = stage.warm(window=8)
    assert delivered(sent) == [("a", 1)]
    sent = stage.say(stage.finished(container_id, "a"))
    assert told(sent) == told(sent, OTHER) == {"a": "COMPLETE"}


def test_only_so_many_callers_hear_of_one_task_and_the_newest_count() -> None:
    stage = Stage()
    stage.submit("a")
    for number in range(6):
        stage.watch("a", source=f"client/{number}")
    assert stage.policy.ledger.calls["a"].watchers == tuple(f"client/{number}" for number in range(2, 6))
    assert stage.policy.ledger.stubs[stage.stub].watching == {f"client/{number}": 1 for number in range(2, 6)}


def test_a_call_that_ended_before_is_answered_and_not_run_again() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm(window=4)
    stage.say(stage.finished(container_id, "a"))
    sent = stage.hear(stage.submission("a", source=OTHER))
    assert sent.only(client.TasksAccepted).task_ids == ("a",)
    assert told(sent, OTHER) == {"a": "COMPLETE"}
    assert delivered(sent) == []
    assert stage.policy.ledger.calls == {}
    assert stage.policy.ledger.containers[container_id].holding == {}


def test_of_one_submission_only_the_new_calls_run() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm(window=4)
    stage.say(stage.finished(container_id, "a", window=4))
    sent = stage.hear(stage.submission("b", "a", "c"))
    assert sent.only(client.TasksAccepted).task_ids == ("b", "a", "c")
    assert delivered(sent) == [("b", 1), ("c", 1)]
    assert told(sent) == {"a": "COMPLETE"}


def test_a_call_that_ended_before_and_is_cancelled_in_the_same_breath_stays_what_it_was() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a", window=0))
    sent = stage.say(stage.submission("a"), stage.cancellation("a"))
    results = [result for message in sent.to(ME, client.TasksFinished) for result in message.results]
    assert [result.state for result in results] == [TaskState.COMPLETE]
    assert sent.only(client.CancelAccepted).standings == (client.TaskStanding("a", TaskState.COMPLETE),)


def test_a_call_that_ended_before_and_is_submitted_as_its_function_fails_stays_what_it_was() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a", window=0))
    stage.say(stage.submission("b"), stage.gone(container_id))
    stub = stage.policy.ledger.stubs[stage.stub]
    stub.failed_starts = 2
    sent = stage.say(stage.submission("a"), stage.gone(stage.requested()[0], End.APP_FAILED_TO_LOAD))
    assert told(sent) == {"a": "COMPLETE", "b": "ERROR"}
    assert stage.truth.state("a") is TaskState.COMPLETE


def test_a_call_that_ends_and_is_submitted_again_in_one_group_is_answered_from_the_store() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    sent = stage.say(stage.finished(container_id, "a"), stage.submission("a", source=OTHER))
    assert told(sent) == told(sent, OTHER) == {"a": "COMPLETE"}
    assert stage.policy.ledger.calls == {}


def test_what_belongs_to_another_workspace_is_not_found() -> None:
    stage = Stage()
    stage.submit("a")
    foreign = stage.register(spec_of(), workspace="v")
    assert refusal(stage, stage.submission("b", stub=foreign)) == "not_found"
    assert refusal(stage, stage.submission("b", stub="stub-nobody")) == "not_found"
    intruder = Letter(
        client.SubmitTasks(stub_id=foreign, tasks=(client.NewTask("a", stage.policy.ledger.calls["a"].arguments),)),
        source=OTHER,
        workspace="v",
        id="q",
    )
    assert refusal(stage, intruder) == "invalid"
    assert refusal(stage, stage.letter(client.ExplainTask(task_id="a"), OTHER, "v")) == "not_found"
    sent = stage.say(stage.letter(client.CancelTasks(task_ids=("a",)), OTHER, "v"))
    assert sent.only(client.CancelAccepted).standings == ()
    sent = stage.say(stage.letter(client.WatchTasks(task_ids=("a",)), OTHER, "v"))
    assert told(sent, OTHER) == {"a": "EXPIRED"}
    assert stage.policy.ledger.calls["a"].watchers == (ME,)


@pytest.mark.parametrize("task_id", ["nul \0", "é", "two\nlines"])
def test_an_identity_that_no_row_should_hold_is_refused_and_harms_nobody(task_id: str) -> None:
    stage = Stage()
    for letter in (
        stage.submission("a", task_id),
        stage.letter(client.WatchTasks(task_ids=(task_id,))),
        stage.letter(client.CancelTasks(task_ids=("a", task_id))),
        stage.letter(client.ResultsTaken(task_ids=(task_id,))),
    ):
        assert refusal(stage, letter) == "invalid"
    assert stage.submit("a").only(client.TasksAccepted).task_ids == ("a",)


def test_a_submission_beyond_what_fits_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "UNFINISHED_MAX", 2)
    stage = Stage()
    stage.submit("a")
    assert refusal(stage, stage.submission("b", "c")) == "refused"
    assert list(stage.policy.ledger.calls) == ["a"]


def test_a_caller_that_says_what_callers_may_not_is_told_so() -> None:
    stage = Stage()
    for message in (
        work.AttemptsFinished(container_id="c", results=(), window=1),
        scheduling.ContainerHeld(stub_id=stage.stub, why="because I say so"),
    ):
        assert refusal(stage, stage.letter(message)) == "invalid"


def test_platform_actors_that_say_what_nobody_takes_get_no_answer() -> None:
    stage = Stage()
    assert stage.say(stage.letter(client.ExplainTask(task_id="a"), "worker/one")) == []
    assert stage.say(stage.letter(client.ExplainTask(task_id="a"), "scheduler")) == []


def test_watching_tells_what_ended_what_is_unknown_and_later_what_ends() -> None:
    stage = Stage()
    stage.submit("a", "b")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a", window=0))
    assert told(stage.watch("a", "b", "c", source=OTHER), OTHER) == {"a": "COMPLETE", "c": "EXPIRED"}
    sent = stage.say(stage.cancellation("b"))
    assert told(sent, OTHER) == {"b": "CANCELLED"}


def test_a_caller_that_watches_very_many_is_told_in_turns() -> None:
    stage = Stage()
    task_ids = tuple(f"t{number}" for number in range(150))
    for task_id in task_ids:
        stage.policy.handle(stage.letter(client.WatchTasks(task_ids=(task_id,))), stage.now_s)
    plan = stage.policy.plan(stage.now_s)
    assert plan is not None
    (read,) = plan.operations
    assert isinstance(read, ops.ReadTasks)
    assert len(read.task_ids) == 64
    assert len(told(stage.say())) == 150 - 64


def test_a_task_that_is_submitted_while_it_is_being_read_is_watched() -> None:
    stage = Stage()
    watching = stage.letter(client.WatchTasks(task_ids=("a",)), OTHER)
    stage.say(watching, stage.submission("a"))
    assert stage.policy.ledger.calls["a"].watchers == (ME, OTHER)


def test_results_that_were_taken_are_marked_with_the_next_commit_or_tick() -> None:
    stage = Stage()
    stage.submit("a")
    container_id, _ = stage.warm()
    stage.say(stage.finished(container_id, "a"))
    assert stage.say(stage.letter(client.ResultsTaken(task_ids=("a",)))) == []
    assert stage.truth.task("a").taken_at_s == 0.0
    stage.tick(0.25)
    assert stage.truth.task("a").taken_at_s == stage.now_s


def test_results_in_one_message_fit_a_frame() -> None:
    stage = Stage()
    stage.submit("a", "b", "c")
    container_id, _ = stage.warm(window=3)
    large = [
        stage.finished(container_id, task_id, window=3, result=client.Payload("msgpack", bytes(400_000)))
        for task_id in ("a", "b", "c")
    ]
    sent = stage.say(*large)
    assert [len(message.results) for message in sent.of(client.TasksFinished)] == [1, 1, 1]


def test_why_names_what_a_call_waits_for() -> None:
    stage = Stage()
    stage.submit("a", "b")
    assert "0 are warm, 1 on its way, 1 call is ahead" in stage.why("b")
    stage.say(stage.held("2 more CPUs on one worker needed."))
    assert stage.why("b").endswith("2 more CPUs on one worker needed.")
    container_id, _ = stage.warm()
    assert stage.why("a") == f"It runs as attempt 1 in {container_id}."
    stage.say(stage.cancellation("a"))
    assert stage.why("a") == f"It was cancelled, and {container_id} has not confirmed yet that its code stopped."
    assert refusal(stage, stage.letter(client.ExplainTask(task_id="nobody"))) == "not_found"


def test_callers_hear_how_far_their_calls_are_once_a_tick() -> None:
    stage = Stage()
    stage.submit("a", "b")
    stage.say(stage.held("no worker is running."))
    progressed = stage.tick().to(ME, client.TasksProgressed)
    assert progressed == [
        client.TasksProgressed(
            stub_id=stage.stub, pending=2, running=0, containers=0, waiting_because="no worker is running."
        )
    ]
    assert stage.tick().of(client.TasksProgressed) == []
    stage.warm()
    (progress,) = stage.tick().to(ME, client.TasksProgressed)
    assert (progress.pending, progress.running, progress.containers) == (1, 1, 1)


def test_a_reason_for_a_stub_that_nobody_knows_is_nothing() -> None:
    stage = Stage()
    letter = Letter(scheduling.ContainerHeld(stub_id="stub-nobody", why="x"), source="scheduler")
    assert stage.say(letter) == []


class TestCancel:
    def test_before_a_container_came(self) -> None:
        stage = Stage()
        stage.submit("a")
        sent = stage.say(stage.cancellation("a", "a"))
        assert sent.only(client.CancelAccepted).standings == (client.TaskStanding("a", TaskState.CANCELLED),)
        assert told(sent) == {"a": "CANCELLED"}
        _, sent = stage.warm()
        assert delivered(sent) == []

    def test_in_the_group_that_brings_the_call_and_its_container(self) -> None:
        stage = Stage()
        stage.submit("first")
        container_id = stage.requested()[0]
        sent = stage.say(stage.available(container_id, 9), stage.submission("a"), stage.cancellation("a"))
        assert delivered(sent) == [("first", 1)]
        assert stage.truth.state("a") is TaskState.CANCELLED
        assert stage.truth.task("a").attempt == 0

    def test_while_it_runs_it_waits_for_the_workers_word(self) -> None:
        stage = Stage()
        stage.submit("a")
        container_id, _ = stage.warm()
        sent = stage.say(stage.cancellation("a"))
        assert sent.only(client.CancelAccepted).standings == (client.TaskStanding("a", TaskState.CANCELLING),)
        assert sent.to("worker/one", work.CancelAttempts) == [
            work.CancelAttempts(container_id=container_id, attempts=(work.AttemptKey("a", 1),))
        ]
        assert told(sent) == {}
        again = stage.say(stage.cancellation("a"))
        assert len(again.of(work.CancelAttempts)) == 1
        sent = stage.say(stage.finished(container_id, "a", End.CANCELLED))
        assert told(sent) == {"a": "CANCELLED"}

    @pytest.mark.parametrize("end", [end for end in End if end is not End.OK])
    def test_whatever_else_becomes_of_a_cancelled_attempt_it_never_runs_again(self, end: End) -> None:
        stage = Stage()
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.cancellation("a"))
        sent = stage.say(stage.finished(container_id, "a", end))
        assert told(sent) == {"a": "CANCELLED"}
        assert stage.truth.state("a") is TaskState.CANCELLED

    def test_a_result_that_was_quicker_than_the_cancel_counts(self) -> None:
        stage = Stage()
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.cancellation("a"))
        assert told(stage.say(stage.finished(container_id, "a"))) == {"a": "COMPLETE"}

    def test_a_cancel_and_a_loss_in_one_group_end_the_task_in_either_order(self) -> None:
        for order in (1, -1):
            stage = Stage()
            stage.submit("a")
            container_id, _ = stage.warm()
            letters = [stage.cancellation("a"), stage.gone(container_id)]
            sent = stage.say(*letters[::order])
            assert told(sent) == {"a": "CANCELLED"}
            assert stage.truth.state("a") is TaskState.CANCELLED
            assert stage.policy.ledger.calls == {}

    def test_a_task_that_waits_for_its_retry_is_cancelled_at_once(self) -> None:
        stage = Stage()
        stage.submit("a")
        container_id, _ = stage.warm()
        stage.say(stage.gone(container_id))
        assert stage.truth.state("a") is TaskState.RETRY
        assert told(stage.say(stage.cancellation("a"))) == {"a": "CANCELLED"}


class TestClusters:
    LAB = PoolOffer(pool="lab-1a", largest=Capacity(cpu_milli=4000, memory_mib=4096), owner="w", known_as="lab")

    def test_a_cluster_is_meant_by_its_short_name_and_the_pool_is_what_is_kept(self) -> None:
        stage = Stage()
        stage.policy.offer((self.LAB,))
        shape = Shape(cpu_milli=100, memory_mib=100, pool="lab")
        stub_id = stage.register(spec_of("f", shape=shape))
        assert stage.truth.tables.stubs[stub_id].spec.shape.pool == "lab-1a"
        stage.say(stage.submission("t", stub=stub_id))
        assert stage.register(spec_of("f", shape=structs.replace(shape, pool="lab-1a"))) == stub_id

    def test_what_waits_for_a_container_asks_for_it_in_that_pool(self) -> None:
        stage = Stage()
        stage.policy.offer((self.LAB,))
        stub_id = stage.register(spec_of("f", shape=Shape(cpu_milli=100, memory_mib=100, pool="lab")))
        asked = stage.say(stage.submission("t", stub=stub_id)).only(scheduling.RequestContainers)
        assert asked.spec.shape.pool == "lab-1a"

    def test_a_cluster_of_somebody_else_is_refused_by_either_name(self) -> None:
        stage = Stage()
        stage.policy.offer((structs.replace(self.LAB, serves="v", owner="v"), structs.replace(self.LAB, pool="mine")))
        for name in ("lab-1a", "nowhere"):
            spec = spec_of("f", shape=Shape(cpu_milli=100, memory_mib=100, pool=name))
            failure = stage.say(stage.letter(client.RegisterStub(spec=spec))).only(client.RequestRefused).failure
            assert (failure.what, failure.fix) == (f"There is no pool {name!r}.", "Pools you may use: lab.")


def test_pools_are_offered_with_their_terms_and_a_cluster_that_never_reported_by_its_cards() -> None:
    size = Capacity(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_type="T4")
    rows = (ops.PoolRecord(pool="plain", largest=size), ops.PoolRecord(pool="lab-1", largest=size))
    terms = {
        "lab-1": PoolTerms(serves="w", owner="w", known_as="lab", gpu_type="T4"),
        "lab-2": PoolTerms(owner="v", known_as="lab", gpu_type="H100"),
    }
    told = offers_of(rows, terms)
    assert [(one.pool, one.serves, one.owner, one.known_as, one.known) for one in told] == [
        ("plain", "", "", "", True),
        ("lab-1", "w", "w", "lab", True),
        ("lab-2", "", "v", "lab", False),
    ]
    assert told[-1].largest.gpu_type == "H100"
