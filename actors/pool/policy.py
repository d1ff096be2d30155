"""How many workers a pool orders, pure: wishes for room, the guard's word and ends of workers in, orders out.

An order is a row before it is a process; its key is the worker's identity, so ordering twice is ordering once. Each
order was let go by the guard, a gang's as one; and whatever is wished, no node has two workers of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...model.figures import WORKER_START_LIMIT_S
from ...model.nodes import NodeOffer, Traits
from ...model.resources import Capacity
from ...model.states import TokenKind, WorkerState
from ...store import operations as ops
from ...wire import scheduling
from ...wire.cluster import JobWaits, NodesKnown
from ...wire.letter import Letter
from ...wire.message import Send
from ...wire.operating import PoolStanding, PoolTold, TellWorkers, TermsChanged, WorkerWish
from ..applied import require_all
from .backing_off import BackOff
from .cardless import Cardless
from .holds import Holds
from .orders import Order, OrderBook
from .questions import Answered, Questions
from .settings import PoolSettings, declarations, declared, on_nodes
from .sizing import WORKERS_COUNTED
from .standing import standing
from .wishes import Needs, Wishes

TOLD_AGAIN_S: Final = 5.0
STANDING_EVERY_S: Final = 1.0
GONE_LOOKED_AT: Final = 200  # of the newest that are gone
_REPORTED: Final = (WorkerState.AVAILABLE, WorkerState.CORDONED, WorkerState.DRAINING, WorkerState.UNKNOWN)


class StartWorker(msgspec.Struct, frozen=True, kw_only=True):
    """Start the process of a committed order, unless it runs already; `token` is for this worker alone."""

    worker_id: str
    token: str
    capacity: Capacity = Capacity(cpu_milli=0, memory_mib=0)
    traits: Traits = Traits()


class Adopt(msgspec.Struct, frozen=True, kw_only=True):
    """Watch a worker of an earlier leader: `handle` finds its process again, or it never had one."""

    worker_id: str
    handle: str
    state: WorkerState
    node: str = ""
    ordered_at_s: float = 0.0


class EndWorker(msgspec.Struct, frozen=True, kw_only=True):
    """End the process of a worker that is of no use; its end is told as any other's."""

    worker_id: str
    why: str


class PoolPlan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, the messages that follow from it, and the processes to start, watch or end."""

    operations: list[ops.Operation]
    sends: list[Send]
    starts: list[StartWorker]
    adopts: list[Adopt]
    ends: list[EndWorker]


class PoolPolicy:
    """Owns the orders of one pool. `new_id(kind)` makes identities, `new_token(kind)` token values."""

    def __init__(
        self, settings: PoolSettings, new_id: Callable[[str], str], new_token: Callable[[TokenKind], str]
    ) -> None:
        self._settings = settings
        self._new_id = new_id
        self._new_token = new_token
        self.book = OrderBook()
        self._wishes = Wishes(settings, self.book)
        self._questions = Questions(settings.name)
        self._back_off = BackOff()
        self._known = settings.nodes  # as they were told
        self._cardless = Cardless()
        self._holds = Holds(settings)
        self._pending_told = -1
        self._standing_told: PoolStanding | None = None
        self._tells_standing_at_s = 0.0
        self._drained_at_s = -TOLD_AGAIN_S
        self._retired = False
        self._operations: list[ops.Operation] = []
        self._sends: list[Send] = []
        self._starts: list[StartWorker] = []
        self._adopts: list[Adopt] = []
        self._ends: list[EndWorker] = []

    @property
    def live(self) -> tuple[str, ...]:
        """The workers that are ordered or run, as far as is known."""
        return self.book.live

    def load(self, workers: Iterable[ops.WorkerRow]) -> None:
        """Begin from the store: workers of earlier leaders are watched, not ordered again. The pool says what it is.

        Of one that is gone, its process may run on, where only its lease has run out: until there is evidence of its
        end, its node gets no other worker. Of several that are gone from a node it is the last: it came after the end
        of those before.
        """
        settings = self._settings
        self._operations += declarations(settings)
        for row in sorted(workers, key=_live_first):
            if row.pool == settings.name and (row.state is not WorkerState.GONE or self._may_run(row)):
                self.book.load(row)
                self._adopts.append(_adopting(row))
        self._sends += [Send("scheduler", declared(settings)), Send("tasks", TermsChanged())]
        if settings.attached:
            self._sends.append(Send("clusters", declared(settings)))
        if settings.nodes or settings.retiring:
            self._tell_nodes()

    def _may_run(self, row: ops.WorkerRow) -> bool:
        return bool(row.traits.node and row.handle) and row.traits.node not in self.book.nodes

    # Letters

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in: of the scheduler, the guard, and of who starts processes. Nobody else is listened to."""
        if letter.source == "scheduler":
            self._from_scheduler(letter, now_s)
        elif letter.source == "guard":
            self._from_guard(letter)
        elif letter.source == "spawner":
            self._from_spawner(letter, now_s)
        elif letter.source == "clusters":
            self._from_clusters(letter, now_s)

    def _from_scheduler(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.RoomWanted() as message:
                self._wishes.hear(message)
            case scheduling.RoomFree() as message:
                self._wishes.hear_free(message)
            case scheduling.GangGivenBack(gang_id=gang_id):
                self._wishes.give_back(gang_id)
                self.book.disband(gang_id)
                self._questions.end_gang(gang_id)
            case scheduling.WorkerForgotten(worker_id=worker_id):
                self.book.forget(worker_id)
            case scheduling.WorkerArrived(worker_id=worker_id, lacks=lacks):
                if (order := self.book.arrived(worker_id, now_s)) is not None:
                    self._drained_at_s = -TOLD_AGAIN_S
                    if self._cardless.came(order, lacks, now_s):
                        self._look_at_nodes(now_s)

    def _from_guard(self, letter: Letter) -> None:
        match letter.message:
            case scheduling.GuardAdmits(key=key):
                self._questions.admitted(key)
            case scheduling.GuardHolds(key=key, why=why):
                self._questions.held(key, why)

    def _from_spawner(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case scheduling.WorkerStarted() as message:
                self._started(message)
            case scheduling.WorkerExited() as message:
                self._exited(message, now_s)

    def _from_clusters(self, letter: Letter, now_s: float) -> None:
        match letter.message:
            case NodesKnown() as message:
                self._know_nodes(message, now_s)
            case JobWaits(why=why):
                self._holds.waits = why
            case _:
                self._from_spawner(letter, now_s)

    def _know_nodes(self, message: NodesKnown, now_s: float) -> None:
        """The nodes are others now, or offer something else; whom the pool serves may have changed as well."""
        before, self._settings = self._settings, on_nodes(self._settings, message)
        self._known = message.offers
        self._offer(self._cardless.on(self._known, now_s))
        others = declarations(self._settings) != declarations(before)
        if others:
            self._operations += declarations(self._settings)
        if declared(self._settings) != declared(before):
            self._sends.append(Send("scheduler", declared(self._settings)))
        if others or self._settings.serves != before.serves:
            self._sends.append(Send("tasks", TermsChanged()))
        self._tell_nodes()

    def _look_at_nodes(self, now_s: float) -> None:
        """What they offer may be another thing, although they are the same."""
        nodes = self._cardless.on(self._known, now_s)
        if nodes != self._settings.nodes:
            self._offer(nodes)
            self._tell_nodes()

    def _offer(self, nodes: tuple[NodeOffer, ...]) -> None:
        self._settings = msgspec.structs.replace(self._settings, nodes=nodes)
        self._wishes.settings = self._holds.settings = self._settings

    def _tell_nodes(self) -> None:
        nodes = scheduling.PoolNodes(pool=self._settings.name, offers=self._settings.nodes)
        self._sends.append(Send("scheduler", nodes))

    def _started(self, message: scheduling.WorkerStarted) -> None:
        """Keep the handle; a worker that was quick has reported already, and stays in the state it has now."""
        if message.worker_id not in self.book:
            return
        keep = [((state,), state) for state in _REPORTED]
        begin = ((WorkerState.ORDERED, WorkerState.PENDING), WorkerState.PENDING)
        moves = tuple(
            ops.WorkerMove(worker_id=message.worker_id, sources=sources, state=state, handle=message.handle)
            for sources, state in (begin, *keep)
        )
        self._operations.append(ops.MoveWorkers(moves=moves, now_s=message.at_s))

    def _exited(self, message: scheduling.WorkerExited, now_s: float) -> None:
        order = self.book.end(message.worker_id)
        if order is None:
            return
        self._back_off.ended(order, now_s, expected=message.expected, left=message.left)
        gone = scheduling.WorkerGone(worker_id=message.worker_id, evidence=message.evidence)
        self._sends.append(Send("scheduler", gone))

    def tick(self, now_s: float) -> None:
        """What is open at the guard is asked again, and who never reports is given up; `plan` looks at the rest."""
        self._questions.ask_again(now_s)
        if self._cardless.opens(now_s):
            self._look_at_nodes(now_s)
        for worker_id in self.book.take_late(now_s - WORKER_START_LIMIT_S):
            why = f"it did not report within {WORKER_START_LIMIT_S / 60:g} minutes, and was told to end"
            self._ends.append(EndWorker(worker_id=worker_id, why=why))

    # The plan

    def plan(self, now_s: float) -> PoolPlan | None:
        """Ask the guard for what is wanted, and order what it let go; None when there is nothing to do."""
        if self._settings.retiring:
            self._retire(now_s)
        else:
            needs = self._wishes.needs()
            backs_off = self._back_off.waits(now_s)
            if not backs_off:
                self._ask(needs, now_s)
                self._order_gangs(needs, now_s)
                self._order_singles(needs, now_s)
            failures = self._back_off.failures if backs_off else 0
            self._sends += self._holds.told(needs, self._questions, failures, self.book.pending)
        self._tell_pending()
        self._tell_standing(now_s)
        self._sends += self._questions.take_sends()
        return self._take_plan()

    def _ask(self, needs: Needs, now_s: float) -> None:
        """One question for each gang, one for each worker beside; none for what is not wanted any more."""
        if not needs.stale:
            self._questions.end_gangs(frozenset(need.gang_id for need in needs.gangs))
        for need in needs.gangs:
            if need.offers:
                self._questions.ask_for_gang(need.gang_id, len(need.offers), now_s)
            else:
                self._questions.end_gang(need.gang_id)
        open_now = len(self._questions.singles())
        if not needs.stale:
            self._questions.end_singles(len(needs.singles))
        for _ in range(min(len(needs.singles), WORKERS_COUNTED) - open_now):
            self._questions.ask(self._new_id("worker"), now_s)

    def _order_gangs(self, needs: Needs, now_s: float) -> None:
        """A gang that was let go is ordered whole, in this one plan."""
        for need in needs.gangs:
            question = self._questions.of_gang(need.gang_id)
            if question is not None and question.answer is Answered.ADMITTED:
                for offer in need.offers:
                    self._order(self._new_id("worker"), offer, need.gang_id, now_s)
                self._questions.end_gang(need.gang_id)

    def _order_singles(self, needs: Needs, now_s: float) -> None:
        admitted = [one for one in self._questions.singles() if one.answer is Answered.ADMITTED]
        for question, offer in zip(admitted, needs.singles):
            self._order(question.key, offer, "", now_s)
            self._questions.end(question.key)

    def _order(self, worker_id: str, offer: NodeOffer, gang_id: str, now_s: float) -> None:
        order = self.book.order(worker_id, offer, gang_id, now_s)
        kind = TokenKind.WORKER_PRIVATE if self._settings.token_workspace else TokenKind.WORKER
        token = self._new_token(kind)
        token_row = self._token_row(worker_id, kind, token, now_s)
        self._operations += [ops.PutWorkers(workers=(self._row(order),)), ops.CreateToken(token=token_row)]
        ordered = scheduling.WorkerOrdered(
            worker_id=worker_id, pool=self._settings.name, capacity=offer.capacity, traits=offer.traits
        )
        self._sends.append(Send("scheduler", ordered))
        self._starts.append(StartWorker(worker_id=worker_id, token=token, capacity=offer.capacity, traits=offer.traits))

    def _row(self, order: Order) -> ops.WorkerRow:
        return ops.WorkerRow(
            worker_id=order.worker_id,
            pool=self._settings.name,
            state=WorkerState.ORDERED,
            capacity=order.capacity,
            ordered_at_s=order.ordered_at_s,
            traits=order.traits,
            gang_id=order.gang_id,
        )

    def _token_row(self, worker_id: str, kind: TokenKind, token: str, now_s: float) -> ops.TokenRow:
        return ops.TokenRow.of(
            token,
            kind,
            self._settings.token_workspace,
            f"worker {worker_id}",
            token_id=self._new_id("token"),
            now_s=now_s,
            subject=worker_id,
        )

    # The end of the pool

    def _retire(self, now_s: float) -> None:
        """Its workers are drained, those on their way as soon as they have come; with the last one the pool is gone."""
        if not len(self.book):
            if not self._retired:
                retired = scheduling.PoolRetired(pool=self._settings.name)
                self._sends += [Send("scheduler", retired), Send("pools", retired)]
                self._sends += [Send("clusters", retired)] * self._settings.attached
            self._retired = True
        elif self.book.reported and now_s >= self._drained_at_s + TOLD_AGAIN_S:
            self._drained_at_s = now_s
            drain = TellWorkers(worker_ids=self.book.reported, wish=WorkerWish.DRAIN)
            self._sends.append(Send("scheduler", drain))

    # The rest of the plan

    def _tell_pending(self) -> None:
        """Before the guard hears that their questions are over, or it would count them too little for a moment."""
        if self.book.pending != self._pending_told:
            self._pending_told = self.book.pending
            pending = scheduling.WorkersPending(pool=self._settings.name, pending=self._pending_told)
            self._sends.append(Send("guard", pending))

    def _tell_standing(self, now_s: float) -> None:
        """For people who look on: at most once a second, and only what is new; of a pool that is no more nothing."""
        if self._retired or now_s < self._tells_standing_at_s:
            return
        self._tells_standing_at_s = now_s + STANDING_EVERY_S
        needs = Needs() if self._settings.retiring else self._wishes.needs()
        now = standing(self._settings, self.book, needs, self._holds.sentences)
        if now != self._standing_told:
            self._standing_told = now
            self._sends.append(Send("pools", PoolTold(standing=now)))

    def _take_plan(self) -> PoolPlan | None:
        plan = PoolPlan(
            operations=self._operations,
            sends=self._sends,
            starts=self._starts,
            adopts=self._adopts,
            ends=self._ends,
        )
        self._operations, self._sends, self._starts, self._adopts, self._ends = [], [], [], [], []
        return plan if plan.operations or plan.sends or plan.starts or plan.adopts or plan.ends else None

    @staticmethod
    def settle(plan: PoolPlan, answers: tuple[ops.Answer, ...]) -> list[Send]:
        """What to send now that the plan is committed. Raises `OutcomeUnknown` when an order was not new.

        A handle may find its worker gone: then nobody needs it.
        """
        for operation, answer in zip(plan.operations, answers):
            if isinstance(operation, ops.PutWorkers):
                require_all(operation, {row.worker_id for row in operation.workers}, answer)
        return plan.sends


def _live_first(row: ops.WorkerRow) -> tuple[bool, float]:
    gone = row.state is WorkerState.GONE
    return gone, -row.ordered_at_s if gone else row.ordered_at_s


def _adopting(row: ops.WorkerRow) -> Adopt:
    return Adopt(
        worker_id=row.worker_id,
        handle=row.handle,
        state=row.state,
        node=row.traits.node,
        ordered_at_s=row.ordered_at_s,
    )
