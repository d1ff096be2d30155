"""Gangs of stubs whose calls run on several containers: asked for as one, warm as one, given back as one.

A gang runs one call at a time. A member that is lost is replaced near those that stay once its call is over; where none
stays, where a member never started, and where it makes room for others, the gang is given back whole.
"""

from __future__ import annotations

from collections.abc import Callable

from ...model.states import ContainerState
from ...store import operations as ops
from ...wire import scheduling
from .demand import COMING_MAX, containers_wanted
from .group import Group
from .ledger import Ledger, Stub
from .outcomes import lost_with
from .waiting import WaitingSide
from .warm import Gang, Warm
from .workers import WorkersSide


class GangsSide:
    """What `ContainersSide` is for containers on their own."""

    def __init__(
        self, ledger: Ledger, group: Group, workers: WorkersSide, waiting: WaitingSide, new_id: Callable[[str], str]
    ) -> None:
        self._ledger = ledger
        self._group = group
        self._workers = workers
        self._waiting = waiting
        self._new_id = new_id

    # What the scheduler says

    def available(self, gang: Gang, now_s: float) -> None:
        """One of its containers is warm."""
        self._workers.send_owed(gang)
        if not gang.task_id:
            gang.idle_since_s = now_s

    def gone(self, gang: Gang, warm: Warm, message: scheduling.ContainerGone, now_s: float) -> None:
        """One of its containers, known no more, has ended: the call that it ran is lost with it."""
        stub = self._ledger.stubs[gang.stub_id]
        held = gang.task_id in warm.holding
        if held and warm.rank not in gang.ended:
            self._workers.lose_rank(gang, warm, lost_with(message.end), message.why, now_s, message.preempted)
        failed = not held and not gang.leaving and self._waiting.count_failure(stub, warm, message, now_s)
        if failed or message.preempted:
            self._retire(gang, "another of its gang was preempted" if message.preempted else message.why)
        elif not gang.rooted:
            self._retire(gang, "nothing else is left of its gang")
        if not gang.members and not gang.task_id:
            del stub.gangs[gang.gang_id]

    # Demand

    def ask(self, stub: Stub, now_s: float) -> None:
        """Ask for the gangs that a stub lacks, and for what its gangs lack."""
        for gang in stub.gangs.values():
            gang.leaving |= not gang.rooted  # each member was given back: none of them is left soon
        staying = [gang for gang in stub.gangs.values() if not (gang.leaving or gang.yielding)]
        for gang in staying:
            if gang.lacking and not gang.task_id:
                self._request(stub, gang.gang_id, gang.lacking, now_s, known=True)
        most = stub.spec.max_containers // stub.spec.nodes
        wanted = containers_wanted(stub.unfinished, stub.mean_s, stub.running_for_s(now_s), most)
        whole = sum(gang.whole for gang in staying)
        if stub.failed_starts and not whole:
            wanted = min(wanted, 1)
        coming_max = max(1, COMING_MAX // stub.spec.nodes)
        for _ in range(min(wanted - len(staying), coming_max - (len(staying) - whole))):
            self._request(stub, self._new_id("gang"), list(range(stub.spec.nodes)), now_s, known=False)

    def _request(self, stub: Stub, gang_id: str, ranks: list[int], now_s: float, *, known: bool) -> None:
        members = [
            Warm(
                container_id=self._new_id("container"),
                stub_id=stub.stub_id,
                gang_id=gang_id,
                rank=rank,
                replaces=known,
            )
            for rank in ranks
        ]
        for member in members:
            self._ledger.add_container(member)
        self._group.request([self._row(stub, member, now_s) for member in members])
        request = scheduling.RequestContainers(
            stub_id=stub.stub_id,
            workspace_id=stub.workspace_id,
            spec=stub.spec,
            container_ids=tuple(member.container_id for member in members),
            gang_id=gang_id,
            ranks=tuple(ranks) if known else (),
        )
        self._group.send("scheduler", request)

    @staticmethod
    def _row(stub: Stub, member: Warm, now_s: float) -> ops.ContainerRow:
        return ops.ContainerRow(
            container_id=member.container_id,
            stub_id=stub.stub_id,
            workspace_id=stub.workspace_id,
            state=ContainerState.REQUESTED,
            requested_at_s=now_s,
            gang_id=member.gang_id,
            rank=member.rank,
        )

    def deliver(self, stub: Stub, now_s: float) -> None:
        """Hand a waiting call to each gang that is free."""
        for gang in stub.gangs.values():
            if not stub.waiting:
                return
            if gang.free:
                call = self._ledger.calls[next(iter(stub.waiting))]
                self._ledger.start(call, gang.members[0], now_s)
                self._group.deliver(call, gang.members[0].worker_id)
                for member in self._ledger.holders(call)[1:]:
                    self._group.deliver_too(call, member.container_id)

    def release_yielded(self, stub: Stub) -> None:
        """Give back gangs that make room for others and have no call any more."""
        yielding = [gang for gang in stub.gangs.values() if gang.yielding and not gang.leaving]
        for gang in yielding:
            if not gang.task_id:
                why = next(member.why_yields for member in gang.members.values() if member.yielding)
                self._retire(gang, why)
        stub.yields = any(gang.task_id for gang in yielding)

    # Time

    def judge(self, stub: Stub, now_s: float) -> None:
        """End attempts whose failure has waited long enough for its cause."""
        for gang in stub.gangs.values():
            if gang.failed_at_s is not None:
                self._workers.judge_gang(gang, now_s)

    def release_idle(self, stub: Stub, since_s: float) -> None:
        """Give back gangs that stand idle since then, and those that nobody needs whole."""
        for gang in stub.gangs.values():
            if gang.leaving or gang.task_id:
                continue
            if not stub.waiting and gang.idle_since_s <= since_s if gang.whole else not stub.unfinished:
                self._retire(gang, "idle")

    def _retire(self, gang: Gang, why: str) -> None:
        gang.leaving = True
        self._workers.ranks.release([gang.members[rank] for rank in sorted(gang.members)], why)
