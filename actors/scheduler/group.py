"""What the letters since the last plan amount to, gathered until it becomes the operations of one transaction."""

from __future__ import annotations

import msgspec

from ...model.queues import Queueing
from ...model.states import ContainerState, End
from ...store import operations as ops
from ...wire.letter import Letter
from ...wire.message import Message, Send
from .ledger import CORDONED, Host, Room


class Plan(msgspec.Struct, kw_only=True):
    """Operations of one transaction, and the messages that follow from it."""

    operations: list[ops.Operation]
    sends: list[Send]


class Group:
    """Filled by the parts of the policy, emptied by `take`.

    Of several moves of one row in an operation the store takes the first that applies, so here each row has one move:
    from the state that the store knows to the newest one.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._operations: list[ops.Operation] = []
        self._container_moves: dict[str, ops.ContainerMove] = {}
        self._worker_moves: dict[str, ops.WorkerMove] = {}
        self._tokens: list[ops.TokenRow] = []
        self._revoked: list[str] = []
        self._sends: list[Send] = []

    def send(self, target: str, message: Message) -> None:
        """Send this once all is committed."""
        self._sends.append(Send(target, message))

    def answer(self, letter: Letter, message: Message) -> None:
        """Answer this letter once all is committed."""
        self._sends.append(Send(letter.source, message, letter.id))

    def create_token(self, row: ops.TokenRow) -> None:
        """Make a token valid."""
        self._tokens.append(row)

    def put_queueing(self, queueing: Queueing) -> None:
        """Keep what was asked for over REST."""
        self._operations.append(ops.PutQueueing(queueing=queueing))

    def revoke(self, subject: str) -> None:
        """The tokens of a container or a worker are good for nothing more."""
        self._revoked.append(subject)

    def record_largest(self, host: Host) -> None:
        """A pool had a worker of this size."""
        self._operations.append(ops.PutPool(pool=host.pool, largest=host.capacity))

    def move_container(self, room: Room, before: ContainerState, end: End | None = None, why: str = "") -> None:
        """A container went from `before` to its state of now."""
        earlier = self._container_moves.get(room.container_id)
        self._container_moves[room.container_id] = ops.ContainerMove(
            container_id=room.container_id,
            sources=(before,) if earlier is None else earlier.sources,
            state=room.state,
            worker_id=room.worker_id or None,
            cards=room.cards or None,
            flavor=room.flavor or None,
            end=end,
            why=why,
        )

    def move_worker(self, host: Host, why: str = "") -> None:
        """A worker is in its state of now, with its epoch and size of now. That it is cordoned is never left out."""
        self._worker_moves[host.worker_id] = ops.WorkerMove(
            worker_id=host.worker_id,
            sources=(),
            state=host.state,
            epoch=host.epoch,
            capacity=host.capacity,
            why=why or (CORDONED if host.cordoned else ""),
        )

    def take(self, now_s: float) -> Plan | None:
        """The plan, or None when there is nothing to do. Tokens are made before they are revoked."""
        operations = self._operations
        if self._tokens:
            operations.append(ops.CreateTokens(tokens=tuple(self._tokens)))
        if self._container_moves:
            operations.append(ops.MoveContainers(moves=tuple(self._container_moves.values()), now_s=now_s))
        if self._worker_moves:
            operations.append(ops.MoveWorkers(moves=tuple(self._worker_moves.values()), now_s=now_s))
        if self._revoked:
            operations.append(ops.RevokeTokens(subjects=tuple(self._revoked)))
        plan = Plan(operations=operations, sends=self._sends)
        self._reset()
        return plan if plan.operations or plan.sends else None
