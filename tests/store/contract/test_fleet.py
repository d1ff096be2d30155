"""Containers, workers, pools and the outbox."""

from msgspec.structs import replace

from levers9.model.nodes import NodeOffer, NodeState, Traits
from levers9.model.queues import Flavor, Queue, Queueing
from levers9.model.resources import Capacity
from levers9.model.states import ContainerState, End, WorkerState
from levers9.store.face import Store
from levers9.store.operations import (
    AckOutbox,
    Applied,
    ContainerMove,
    ContainerRow,
    DropPoolSpec,
    ListPools,
    ListPoolSpecs,
    LoadContainers,
    LoadOutbox,
    LoadWorkers,
    MoveContainers,
    MoveWorkers,
    OutboxRow,
    PoolRecord,
    PoolSpecRow,
    PutContainers,
    PutOutbox,
    PutPool,
    PutPoolSpec,
    PutQueueing,
    PutWorkers,
    QueueingRow,
    ReadContainers,
    ReadQueueing,
    WorkerMove,
    WorkerRow,
)

CS, WS = ContainerState, WorkerState
SIZE = Capacity(cpu_milli=4000, memory_mib=16_000, gpu_count=2, gpu_type="H100")


def container(number: int, **changes: object) -> ContainerRow:
    row = ContainerRow(
        container_id=f"container-{number}",
        stub_id="stub-1",
        workspace_id="workspace-1",
        state=CS.REQUESTED,
        requested_at_s=float(number),
    )
    return replace(row, **changes)


def moving(number: int, state: ContainerState, *sources: ContainerState, **rest: object) -> ContainerMove:
    return replace(ContainerMove(container_id=f"container-{number}", sources=sources, state=state), **rest)


async def test_known_containers_are_left_as_they_are(store: Store) -> None:
    full = container(
        2,
        state=CS.ENDED,
        worker_id="worker-1",
        placed_at_s=3.0,
        ready_at_s=4.0,
        ended_at_s=5.0,
        end=End.KILLED,
        why="it was in the way",
    )
    put = PutContainers(containers=(full, container(1)))
    assert await store.apply(put) == (Applied(ids=("container-2", "container-1")),)
    assert await store.apply(PutContainers(containers=(container(1, why="again"), container(3)))) == (
        Applied(ids=("container-3",)),
    )
    assert await store.apply(LoadContainers(ended=1)) == ((container(1), full, container(3)),)


async def test_a_container_moves_only_from_its_sources_and_keeps_its_times(store: Store) -> None:
    await store.apply(PutContainers(containers=(container(1),)))
    place = MoveContainers(moves=(moving(1, CS.PLACED, CS.REQUESTED, worker_id="worker-1"),), now_s=5.0)
    assert await store.apply(place, place) == (Applied(ids=("container-1",)), Applied())
    ready = MoveContainers(moves=(moving(1, CS.READY, CS.PLACED, CS.READY),), now_s=6.0)
    assert await store.apply(ready, replace(ready, now_s=7.0)) == (Applied(ids=("container-1",)),) * 2
    stop = MoveContainers(moves=(moving(1, CS.STOPPING, CS.READY, why="idle"),), now_s=8.0)
    end = MoveContainers(moves=(moving(1, CS.ENDED, CS.READY, CS.STOPPING, end=End.OK),), now_s=9.0)
    await store.apply(stop, end)
    ended = container(
        1,
        state=CS.ENDED,
        worker_id="worker-1",
        placed_at_s=5.0,
        ready_at_s=6.0,
        ended_at_s=9.0,
        end=End.OK,
        why="idle",
    )
    assert await store.apply(LoadContainers(ended=1)) == ((ended,),)


async def test_of_several_moves_of_a_container_the_first_that_applies_counts(store: Store) -> None:
    await store.apply(PutContainers(containers=(container(1), container(2))))
    moves = (
        moving(2, CS.ENDED, CS.PLACED),
        moving(1, CS.ENDED, CS.READY),
        moving(1, CS.PLACED, CS.REQUESTED),
        moving(1, CS.ENDED, CS.REQUESTED, CS.PLACED),
    )
    assert await store.apply(MoveContainers(moves=moves, now_s=5.0)) == (Applied(ids=("container-1",)),)
    (rows,) = await store.apply(LoadContainers())
    assert isinstance(rows, tuple)
    assert [row.state for row in rows] == [CS.PLACED, CS.REQUESTED]


async def test_the_newest_ended_containers_are_loaded_beside_the_others(store: Store) -> None:
    ended = tuple(container(n, state=CS.ENDED, ended_at_s=50.0 - n) for n in range(1, 5))
    other = container(9, workspace_id="workspace-2", requested_at_s=0.0)
    await store.apply(PutContainers(containers=(*ended, container(7), other)))
    assert await store.apply(LoadContainers()) == ((other, container(7)),)
    assert await store.apply(LoadContainers(ended=2)) == ((other, ended[0], ended[1], container(7)),)
    assert await store.apply(LoadContainers(workspace_id="workspace-2", ended=9)) == ((other,),)


async def test_a_member_of_a_gang_keeps_its_rank_and_gets_its_cards_with_its_place(store: Store) -> None:
    member = container(1, gang_id="gang-1", rank=3)
    await store.apply(PutContainers(containers=(member, container(2, cards=(5,), flavor="a100"))))
    place = moving(1, CS.PLACED, CS.REQUESTED, worker_id="worker-1", cards=(0, 2), flavor="gb200")
    gives_back = moving(2, CS.ENDED, CS.REQUESTED, cards=(), flavor="")
    await store.apply(MoveContainers(moves=(place, gives_back), now_s=5.0))
    await store.apply(MoveContainers(moves=(moving(1, CS.READY, CS.PLACED),), now_s=6.0))
    (rows,) = await store.apply(LoadContainers(ended=1))
    ready = replace(member, state=CS.READY, worker_id="worker-1", placed_at_s=5.0, ready_at_s=6.0)
    assert rows == (
        replace(ready, cards=(0, 2), flavor="gb200"),
        container(2, state=CS.ENDED, ended_at_s=5.0),
    )


def worker(number: int, **changes: object) -> WorkerRow:
    row = WorkerRow(
        worker_id=f"worker-{number}", pool="local", state=WS.ORDERED, capacity=SIZE, ordered_at_s=float(number)
    )
    return replace(row, **changes)


def worker_move(number: int, state: WorkerState, *sources: WorkerState, **rest: object) -> WorkerMove:
    return replace(WorkerMove(worker_id=f"worker-{number}", sources=sources, state=state), **rest)


async def test_an_order_is_made_once(store: Store) -> None:
    assert await store.apply(PutWorkers(workers=(worker(2), worker(1)))) == (Applied(ids=("worker-2", "worker-1")),)
    assert await store.apply(PutWorkers(workers=(worker(2, pool="other"),))) == (Applied(),)
    assert await store.apply(LoadWorkers()) == ((worker(1), worker(2)),)


async def test_a_worker_reports_with_its_epoch_and_an_older_one_is_refused(store: Store) -> None:
    await store.apply(PutWorkers(workers=(worker(1),)))
    smaller = replace(SIZE, gpu_count=1)
    start = worker_move(1, WS.PENDING, WS.ORDERED, handle="boot:1:2")
    report = worker_move(1, WS.AVAILABLE, WS.PENDING, WS.AVAILABLE, epoch=3, capacity=smaller)
    assert await store.apply(
        MoveWorkers(moves=(start,), now_s=5.0),
        MoveWorkers(moves=(report,), now_s=6.0),
        MoveWorkers(moves=(replace(report, epoch=2),), now_s=7.0),
        MoveWorkers(moves=(replace(report, epoch=3),), now_s=8.0),
    ) == (Applied(ids=("worker-1",)), Applied(ids=("worker-1",)), Applied(), Applied(ids=("worker-1",)))
    row = worker(1, state=WS.AVAILABLE, capacity=smaller, epoch=3, handle="boot:1:2", seen_at_s=8.0)
    assert await store.apply(LoadWorkers()) == ((row,),)


TRAITS = Traits(node="tray-1", labels=(("domain", "é"), ("zone", "")), gpu_sharing=True, runtimes=("runc",))


async def test_a_worker_keeps_its_node_and_the_gang_that_it_was_ordered_for(store: Store) -> None:
    ordered = worker(1, traits=TRAITS, gang_id="gang-1")
    await store.apply(PutWorkers(workers=(ordered, worker(2))))
    assert await store.apply(LoadWorkers()) == ((ordered, worker(2)),)
    moves = (worker_move(1, WS.AVAILABLE), worker_move(2, WS.AVAILABLE, traits=TRAITS))
    await store.apply(MoveWorkers(moves=moves, now_s=5.0))
    seen = (replace(ordered, state=WS.AVAILABLE, seen_at_s=5.0), worker(2, state=WS.AVAILABLE, seen_at_s=5.0))
    assert await store.apply(LoadWorkers()) == ((seen[0], replace(seen[1], traits=TRAITS)),)


async def test_a_worker_that_is_gone_moves_no_more(store: Store) -> None:
    await store.apply(PutWorkers(workers=(worker(1),)))
    gone = MoveWorkers(moves=(worker_move(1, WS.GONE, why="it said goodbye"),), now_s=9.0)
    assert await store.apply(gone, replace(gone, now_s=10.0)) == (Applied(ids=("worker-1",)), Applied())
    assert await store.apply(LoadWorkers()) == ((),)
    assert await store.apply(LoadWorkers(gone=1)) == (
        (worker(1, state=WS.GONE, gone_at_s=9.0, why="it said goodbye"),),
    )


async def test_silence_is_no_sight_and_a_new_state_has_a_new_reason(store: Store) -> None:
    await store.apply(PutWorkers(workers=(worker(1, state=WS.AVAILABLE, seen_at_s=4.0),)))
    await store.apply(MoveWorkers(moves=(worker_move(1, WS.UNKNOWN, why="silent"),), now_s=9.0))
    assert await store.apply(LoadWorkers()) == ((worker(1, state=WS.UNKNOWN, seen_at_s=4.0, why="silent"),),)
    await store.apply(MoveWorkers(moves=(worker_move(1, WS.AVAILABLE, WS.UNKNOWN),), now_s=11.0))
    assert await store.apply(LoadWorkers()) == ((worker(1, state=WS.AVAILABLE, seen_at_s=11.0),),)


async def test_the_newest_gone_workers_are_loaded_beside_the_others(store: Store) -> None:
    gone = tuple(worker(n, state=WS.GONE, gone_at_s=50.0 - n) for n in range(1, 4))
    await store.apply(PutWorkers(workers=(*gone, worker(9))))
    assert await store.apply(LoadWorkers(gone=2)) == ((gone[0], gone[1], worker(9)),)


async def test_the_largest_worker_of_a_pool_only_grows_and_card_types_are_rows(store: Store) -> None:
    other = Capacity(cpu_milli=1000, memory_mib=99_000, gpu_count=1, gpu_type="H100")
    put = PutPool(pool="local", largest=SIZE)
    assert await store.apply(put, put) == (Applied(ids=("local",)), Applied())
    assert await store.apply(PutPool(pool="local", largest=other)) == (Applied(ids=("local",)),)
    plain = Capacity(cpu_milli=100, memory_mib=100)
    await store.apply(PutPool(pool="local", largest=plain), PutPool(pool="cpu", largest=plain))
    assert await store.apply(ListPools()) == (
        (
            PoolRecord(pool="cpu", largest=plain),
            PoolRecord(pool="local", largest=plain),
            PoolRecord(pool="local", largest=replace(SIZE, memory_mib=99_000)),
        ),
    )


async def test_what_a_pool_declares_stays_until_it_declares_something_else(store: Store) -> None:
    offer = NodeOffer(capacity=SIZE, traits=TRAITS, state=NodeState.CORDONED)
    put = PutPool(pool="local", largest=SIZE, offers=(offer,))
    assert await store.apply(put, put) == (Applied(ids=("local",)), Applied())
    assert await store.apply(PutPool(pool="local", largest=SIZE)) == (Applied(),)
    assert await store.apply(ListPools()) == ((PoolRecord(pool="local", largest=SIZE, offers=(offer,)),),)
    grown = replace(put, offers=(), max_workers=3)
    assert await store.apply(grown, replace(grown, max_workers=2)) == (Applied(ids=("local",)), Applied())
    other = replace(put, offers=(replace(offer, state=NodeState.READY),))
    assert await store.apply(other) == (Applied(ids=("local",)),)
    assert await store.apply(ListPools()) == (
        (PoolRecord(pool="local", largest=SIZE, offers=other.offers, max_workers=3),),
    )


async def test_a_pool_that_was_created_is_replaced_by_name_and_dropped_once(store: Store) -> None:
    await store.apply(PutPoolSpec(name="b", table="{}"), PutPoolSpec(name="a", table="1"))
    assert await store.apply(PutPoolSpec(name="a", table='{"workers": 2}')) == (Applied(ids=("a",)),)
    rows = (PoolSpecRow(name="a", table='{"workers": 2}'), PoolSpecRow(name="b", table="{}"))
    assert await store.apply(ListPoolSpecs()) == (rows,)
    assert await store.apply(DropPoolSpec(name="a"), DropPoolSpec(name="a")) == (Applied(ids=("a",)), Applied())
    assert await store.apply(ListPoolSpecs()) == (rows[1:],)


async def test_queues_and_quotas_are_kept_as_a_whole(store: Store) -> None:
    assert await store.apply(ReadQueueing()) == (QueueingRow(),)
    flavor = Flavor(name="gb200", labels={"gpu.present": "true"})
    first = Queueing(flavors=(flavor,), queues=(Queue(name="gpu", workspace="ws-é", quota="gpu"),))
    assert await store.apply(PutQueueing(queueing=first)) == (Applied(ids=("queueing",)),)
    assert await store.apply(ReadQueueing()) == (QueueingRow(queueing=first),)
    await store.apply(PutQueueing(queueing=Queueing(flavors=(flavor,))))
    assert await store.apply(ReadQueueing()) == (QueueingRow(queueing=Queueing(flavors=(flavor,))),)


def owed(key: str, created_at_s: float, payload: bytes = b"\0packed") -> OutboxRow:
    return OutboxRow(key=key, target="worker/1", payload=payload, created_at_s=created_at_s)


async def test_what_is_owed_is_replaced_by_key_and_goes_when_acknowledged(store: Store) -> None:
    put = PutOutbox(rows=(owed("b", 1.0), owed("a", 2.0), owed("b", 3.0, b"newer")))
    assert await store.apply(put) == (Applied(ids=("b", "a")),)
    assert await store.apply(LoadOutbox()) == ((owed("a", 2.0), owed("b", 3.0, b"newer")),)
    assert await store.apply(PutOutbox(rows=(owed("a", 4.0, b"again"),))) == (Applied(ids=("a",)),)
    assert await store.apply(AckOutbox(keys=("none", "b", "b"))) == (Applied(ids=("b",)),)
    assert await store.apply(LoadOutbox()) == ((owed("a", 4.0, b"again"),),)


async def test_containers_are_read_by_their_ids_and_by_their_worker(store: Store) -> None:
    there = [container(number, worker_id="worker-1", state=CS.ENDED) for number in (1, 2, 3)]
    elsewhere = container(4, worker_id="worker-2", workspace_id="workspace-2")
    waiting = container(5)
    await store.apply(PutContainers(containers=(*there, elsewhere, waiting)))
    for asked, expected in (
        (ReadContainers(), ()),
        (ReadContainers(container_ids=("container-1", "container-5", "unknown")), (waiting, there[0])),
        (ReadContainers(worker_id="worker-1"), tuple(reversed(there))),
        (ReadContainers(worker_id="worker-1", limit=1), (there[2],)),
        (ReadContainers(container_ids=("container-1", "container-3"), worker_id="worker-1", limit=1), there[2::-2]),
        (
            ReadContainers(container_ids=("container-1",), worker_id="worker-2", workspace_id="workspace-2"),
            (elsewhere,),
        ),
    ):
        assert await store.apply(asked) == (tuple(expected),)
