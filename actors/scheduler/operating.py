"""What people who run the platform ask of the scheduler: queues and quotas read and changed, workers cordoned."""

from __future__ import annotations

from typing import Final

from ...errors import INVALID, NOT_FOUND, Refused
from ...model.queueing_checks import check_queueing, fitting
from ...model.queueing_parts import PARTS, WORDS, merged, name_of, without
from ...model.queues import Queueing
from ...wire import operating
from ...wire.letter import Letter
from . import events
from .deciding import Deciding
from .group import Group
from .workers import Workers

OPERATORS: Final = (operating.ReadQueueing, operating.ChangeQueueing, operating.TellWorkers)


class Operators:
    """Takes what they say. Raises `Refused` for what they may get wrong. `given` comes from files, and wins."""

    def __init__(self, group: Group, deciding: Deciding, workers: Workers, given: Queueing) -> None:
        self._group = group
        self._deciding = deciding
        self._workers = workers
        self._given = given
        self._kept = Queueing()

    def load(self, kept: Queueing, now_s: float) -> None:
        """Begin with what came over REST in earlier reigns, less what no longer fits to the files of this one."""
        self._kept = fitting(kept, self._given)
        self._deciding.tell(events.QueueingSet(queueing=merged(self._kept, self._given)), now_s)

    def handle(self, letter: Letter, now_s: float) -> None:
        """Take one letter in."""
        match letter.message:
            case operating.ReadQueueing():
                self._answer(letter)
            case operating.ChangeQueueing() as message:
                self._change(message, now_s)
                self._answer(letter)
            case operating.TellWorkers(worker_ids=worker_ids, wish=wish):
                self._tell_workers(letter, worker_ids, wish, now_s)

    def _change(self, message: operating.ChangeQueueing, now_s: float) -> None:
        self._refuse_given(message)
        kept = merged(self._kept, message.put)
        for part, name in message.drop:
            if all(name_of(thing) != name for thing in getattr(kept, part)):
                raise Refused(f"There is no {WORDS[part]} {name}.", fix="Correct the name.", code=NOT_FOUND)
            kept = without(kept, part, name)
        whole = merged(kept, self._given)
        check_queueing(whole)
        self._kept = kept
        self._group.put_queueing(kept)
        self._group.send("tasks", operating.TermsChanged())
        self._deciding.tell(events.QueueingSet(queueing=whole), now_s)

    def _refuse_given(self, message: operating.ChangeQueueing) -> None:
        """What files say is changed there: said over REST it would change nothing."""
        asked = [(part, name_of(thing)) for part in PARTS for thing in getattr(message.put, part)]
        asked += [(part.value, name) for part, name in message.drop]
        given = [(part, name_of(thing)) for part in PARTS for thing in getattr(self._given, part)]
        for part, name in asked:
            if (part, name) in given:
                what = f"{WORDS[part].capitalize()} {name} stands in the configuration file."
                raise Refused(what, fix="Change it there, and start the control plane again.", code=INVALID)

    def _answer(self, letter: Letter) -> None:
        core = self._deciding.core
        queues, quotas = core.queues.standing()
        stands = operating.QueueingStands(queueing=core.queueing, queues=queues, quotas=quotas)
        self._group.answer(letter, stands)

    def _tell_workers(
        self, letter: Letter, worker_ids: tuple[str, ...], wish: operating.WorkerWish, now_s: float
    ) -> None:
        states = []
        for worker_id in worker_ids:
            state = self._workers.wish(worker_id, wish, now_s)
            if state is not None:
                states.append((worker_id, state.value))
        if not states:
            raise Refused(
                f"There is no worker {', '.join(worker_ids)}.", fix="See `levers9 worker list`.", code=NOT_FOUND
            )
        self._group.answer(letter, operating.WorkersTold(states=tuple(states)))
