"""Groups of operations in transactions, on the island: the writer, and the readers beside it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import asyncpg
import msgspec
import outcome

from ...errors import ClosedByUs, EpochSuperseded, LeversError, OutcomeUnknown, StoreUnavailable
from ..island import Reply, give_all
from ..operations import Answer, Applied, Operation
from .plans import LOCK_EPOCH, plan_of
from .session import READER, WRITER, Lost, LostBefore, Session, connect_patiently, translated

GROUP_OPERATIONS: Final = 256  # a longer group would make its first caller wait for its last
Answers = tuple[Answer, ...]
_CLOSED: Final = "the store was closed by us"


class Request(msgspec.Struct, frozen=True, eq=False):
    """One caller's operations, which stay together."""

    operations: tuple[Operation, ...]
    epoch: int | None
    reply: Reply[Answers]


class Counts(msgspec.Struct):
    """What was done so far. Written on the island only."""

    operations: int = 0
    commits: int = 0
    failures: int = 0
    largest_group: int = 0


class Writer:
    """One connection, one transaction at a time, so writes keep the order in which they came.

    There is no timer: the next group is what came in during the last commit.
    """

    def __init__(self, url: str, patience_s: float, counts: Counts) -> None:
        self.inbox: deque[Request] = deque()
        self._url = url
        self._patience_s = patience_s
        self._counts = counts
        self._session: Session | None = None
        self._arrived = asyncio.Event()

    @property
    def awake(self) -> bool:
        """Whether it will look into the inbox again without being told."""
        return self._arrived.is_set()

    def wake(self) -> None:
        """There is something in the inbox. The island wants a turn then."""
        self._arrived.set()

    async def run(self) -> None:
        """Commit for ever; answer what is left when cancelled."""
        try:
            while True:
                await self._arrived.wait()
                while self.inbox:
                    await self._serve(self._next_group())
                self._arrived.clear()
        finally:
            _refuse_all(tuple(self.inbox), ClosedByUs, _CLOSED)
            if self._session is not None:
                self._session.drop()

    def _next_group(self) -> tuple[Request, ...]:
        """The callers at the head of the queue that speak for the same epoch."""
        group = [self.inbox.popleft()]
        size = len(group[0].operations)
        while self.inbox and self.inbox[0].epoch == group[0].epoch:
            size += len(self.inbox[0].operations)
            if size > GROUP_OPERATIONS:
                break
            group.append(self.inbox.popleft())
        return tuple(group)

    async def _serve(self, group: tuple[Request, ...]) -> None:
        transaction = _Transaction(group)
        try:
            answers = await self._run(transaction)
        except asyncio.CancelledError:
            _refuse_all(group, OutcomeUnknown if transaction.commit_sent else ClosedByUs, _CLOSED)
            raise
        except EpochSuperseded as error:
            give_all([(request.reply, outcome.Error(EpochSuperseded(error.owner, error.epoch))) for request in group])
        except Lost as error:
            kind = OutcomeUnknown if transaction.commit_sent else StoreUnavailable
            self._failed(group, kind, f"the connection to Postgres broke: {error}")
        except StoreUnavailable as error:
            self._failed(group, StoreUnavailable, str(error))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            await self._refused(group, error)
        except Exception as error:  # the edge of the island: a mistake of ours must not leave callers waiting
            if self._session is not None:
                self._session.drop()
            kind = OutcomeUnknown if transaction.commit_sent else StoreUnavailable
            self._failed(group, kind, f"the store failed: {type(error).__name__}: {error}")
        else:
            self._counts.operations += len(transaction.operations)
            self._counts.commits += 1
            self._counts.largest_group = max(self._counts.largest_group, len(transaction.operations))
            give_all([(request.reply, outcome.Value(each)) for request, each in zip(group, answers)])

    async def _run(self, transaction: _Transaction) -> list[Answers]:
        """Run it; on another connection where the one we had was gone before anything was sent."""
        try:
            return await transaction.run(await self._connected())
        except LostBefore:
            if transaction.begun:
                raise
        transaction.commit_sent = False
        return await transaction.run(await self._connected())

    async def _connected(self) -> Session:
        if self._session is None or self._session.closed:
            self._session = await connect_patiently(self._url, WRITER, self._patience_s)
            await self._session.bound_transactions()
        return self._session

    def _failed(self, group: tuple[Request, ...], kind: type[LeversError], why: str) -> None:
        self._counts.failures += 1
        _refuse_all(group, kind, why)

    async def _refused(self, group: tuple[Request, ...], error: asyncpg.PostgresError | asyncpg.InterfaceError) -> None:
        """The server refused something in the group: it is one caller's, and the others must not suffer for it."""
        self._counts.failures += 1
        if len(group) == 1:
            give_all([(group[0].reply, outcome.Error(translated(error)))])
            return
        for request in group:
            await self._serve((request,))


class _Transaction:
    """One group's transaction: as few round trips as it can be."""

    def __init__(self, group: tuple[Request, ...]) -> None:
        self._group = group
        self._epoch = group[0].epoch
        self.operations = tuple([operation for request in group for operation in request.operations])
        self.begun = False
        self.commit_sent = False

    async def run(self, session: Session) -> list[Answers]:
        """Each caller's answers, committed."""
        if len(self.operations) == 1 and plan_of(self.operations[0]).guarded:
            self.commit_sent = True  # the statement is its own transaction
            return [(await self._answer(session, self.operations[0], self._epoch),)]
        await session.execute("BEGIN")
        self.begun = True
        try:
            answers = await self._answers(session)
        except BaseException:
            await _roll_back(session)
            raise
        self.commit_sent = True
        await session.execute("COMMIT")
        return answers

    async def _answers(self, session: Session) -> list[Answers]:
        unchecked = await self._lock(session)
        answers: deque[Answer] = deque()
        for operation in self.operations:
            answers.append(await self._answer(session, operation, unchecked))
            unchecked = None  # the first one locked the epoch for the whole transaction
        return [tuple([answers.popleft() for _ in request.operations]) for request in self._group]

    async def _answer(self, session: Session, operation: Operation, unchecked: int | None) -> Answer:
        """By the short statement if there is one, or else, or where it applied to nothing, by the whole one."""
        short = plan_of(operation).short
        values = None if short is None or self._epoch is None else short.arguments(operation)
        if short is not None and values is not None and await session.fetch(short.sql, (self._epoch, *values)):
            return Applied(ids=(cast("str", values[0]),))
        return await _carry_out(session, operation, unchecked)

    async def _lock(self, session: Session) -> int | None:
        """Lock the epoch, or answer the epoch that the first operation will check and lock by itself."""
        if self._epoch is None or (self.operations and plan_of(self.operations[0]).guarded):
            return self._epoch
        if not await session.fetch(LOCK_EPOCH, (self._epoch,)):
            raise EpochSuperseded("leader", self._epoch)
        return None


async def _carry_out(session: Session, operation: Operation, epoch: int | None) -> Answer:
    plan = plan_of(operation)
    if plan.guarded:
        sql, arguments = plan.steps[0]
        rows = await session.fetch(sql, (epoch, *arguments(operation)))
        if epoch is not None and not rows[0][0]:
            raise EpochSuperseded("leader", epoch)
        return plan.answer(operation, rows)
    for sql, arguments in plan.steps:
        rows = await session.fetch(sql, arguments(operation))
    return plan.answer(operation, rows)


async def _roll_back(session: Session) -> None:
    """Leave the connection clean, or leave it."""
    try:
        await session.execute("ROLLBACK")
    except (Lost, asyncpg.PostgresError, asyncpg.InterfaceError):
        session.drop()


def _refuse_all(group: tuple[Request, ...], kind: type[LeversError], why: str) -> None:
    give_all([(request.reply, outcome.Error(kind(why))) for request in group])


class Readers:
    """Connections for groups that only read: they never wait for writes, and see what was committed before."""

    def __init__(self, url: str, count: int, patience_s: float, counts: Counts) -> None:
        self._url = url
        self._patience_s = patience_s
        self._counts = counts
        self._free = asyncio.Semaphore(count)
        self._idle: list[Session] = []

    async def read(self, operations: tuple[Operation, ...]) -> Answers:
        """Answer from one snapshot. A connection that turns out broken is replaced once."""
        async with self._free:
            for last in (False, True):
                session = await self._connected()
                try:
                    answers = await self._answers(session, operations)
                except Lost as error:
                    if last:
                        self._counts.failures += 1
                        raise StoreUnavailable(f"the connection to Postgres broke: {error}") from error
                except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    self._counts.failures += 1
                    self._idle.append(session)
                    raise translated(error) from error
                except BaseException:
                    session.drop()
                    raise
                else:
                    self._counts.operations += len(operations)
                    self._idle.append(session)
                    return answers
            raise AssertionError("the loop above returns or raises")

    async def _connected(self) -> Session:
        while self._idle:
            session = self._idle.pop()
            if not session.closed:
                return session
        return await connect_patiently(self._url, READER, self._patience_s)

    async def _answers(self, session: Session, operations: tuple[Operation, ...]) -> Answers:
        if len(operations) == 1:
            return (await _carry_out(session, operations[0], None),)
        await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        try:
            return tuple([await _carry_out(session, operation, None) for operation in operations])
        finally:
            await _roll_back(session)

    async def run(self) -> None:
        """Drop the connections when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for session in self._idle:
                session.drop()
