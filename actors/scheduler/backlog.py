"""What waits, in order, without a look at anybody whose turn cannot have come.

Requests that are alike in all that decides whether they fit stand behind one gate. A gate is shut when one of them did
not fit, and then none of the others is looked at; when there may be room again, they come one after another, until one
does not fit again. Behind an open gate they are ranked: lines of equal requests in lanes, lanes in queues, queues in
workspaces; whenever a share changes, one place changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from ...model.resources import Shape
from .events import Request
from .lanes import Bounds, Cell, Gate, GateKey, Lane, Line, Parked, Row, Space, Where
from .ordered import Key, Ordered, Turns

PROBING_MAX = 64  # gates that may be ajar at a time; more of them are opened wide
WAKERS_MAX = 4  # of a gate; if more say that there is room, there is
CHANGES_MAX = 4096  # of shares that a shut gate catches up with one by one; beyond, it orders all anew


class Backlog:
    """Lanes and gates. `level(value, requested_at_s, now_ms)`: a priority with ageing, and when it rises (0: never)."""

    def __init__(self, level: Callable[[int, float, int], tuple[int, int]]) -> None:
        self._level = level
        self.turns = Turns()
        self._front: Ordered[Space] = Ordered(self.turns)
        self._found: dict[str, tuple[Request, Line]] = {}
        self._gates: dict[GateKey, Gate] = {}
        self._shut: dict[str, dict[Gate, None]] = {}  # for quota, by tree
        self._shut_for_room: dict[Shape, dict[Gate, None]] = {}
        self._probing: dict[Gate, None] = {}
        self._changes: list[Row] = []
        self._changes_before = 0
        self._ageing: list[tuple[int, int, Line]] = []
        self._unseen: dict[Line, None] = {}
        self._of_group: dict[str, dict[Line, None]] = {}
        self._others: dict[Line, None] = {}
        self._roomless: dict[Shape, dict[Lane, None]] = {}  # blocked one by one
        self.looked_at = 0  # how often a request was handed out; for those who count the cost

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._found

    def find(self, request_id: str) -> tuple[Request, Line] | None:
        """A waiting request and its line."""
        return self._found.get(request_id)

    def requests(self) -> Iterator[Request]:
        """All that wait, as they came."""
        return (request for request, _ in self._found.values())

    def gate(self, key: GateKey, tree: str, bounds: Bounds) -> Gate:
        """The gate with this key, perhaps a new one."""
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(key, tree, bounds, self.turns)
        return gate

    # Coming and going

    def add(self, request: Request, lane: Lane, value: int, now_ms: int) -> None:
        """One more waits in this lane."""
        name = (request.group, request.priority)
        line = lane.by_name.get(name)
        if line is None:
            line = lane.by_name[name] = Line(lane, request.group, request.priority, value)
            lane.gate.lanes[lane] = None
            self._unseen[line] = None
            self._of_group.setdefault(request.group, {})[line] = None
        entry = request.requested_at_s, request.request_id
        heappush(line.waiting, entry)
        line.count += 1
        lane.row.enter(value, entry)
        self._found[request.request_id] = (request, line)
        if line.waiting[0][1] == request.request_id:
            self._lead(line, now_ms)

    def remove(self, request_id: str, now_ms: int) -> None:
        """It does not wait any more."""
        request, line = self._found.pop(request_id)
        line.count -= 1
        line.lane.row.leave(line.value, (request.requested_at_s, request_id))
        if not line.count:
            self._end_line(line)
        elif line.head == request_id:
            self._lead(line, now_ms)

    def _lead(self, line: Line, now_ms: int) -> None:
        """Whoever is first of a line stands for all of it."""
        waiting = line.waiting
        while waiting[0][1] not in self._found:
            heappop(waiting)
        before, (requested_at_s, line.head) = line.head, waiting[0]
        if before != line.head:
            self._unseen[line] = None  # what was found of the one before says nothing of who waits now
        line.level, rises_at_ms = self._level(line.value, requested_at_s, now_ms)
        if rises_at_ms and (not line.ageing_at_ms or rises_at_ms < line.ageing_at_ms):
            line.ageing_at_ms = rises_at_ms
            heappush(self._ageing, (rises_at_ms, self.turns.next(), line))
        if not line.other:
            line.lane.lines.put(line, (-line.level, 0, 0, requested_at_s, line.head))
            self._show(line.lane)

    def _end_line(self, line: Line) -> None:
        lane = line.lane
        del lane.by_name[line.group, line.priority]
        self._unseen.pop(line, None)
        alike = self._of_group[line.group]
        del alike[line]
        if alike:
            self._unseen.update(alike)
        else:
            del self._of_group[line.group]
        self._others.pop(line, None)
        line.waiting.clear()
        lane.lines.drop(line)
        self._show(lane)
        if not lane.by_name:
            del lane.row.lanes[lane.kind]
            del lane.gate.lanes[lane]
            self._roomless.get(lane.gate.shape, {}).pop(lane, None)
            if not lane.gate.lanes:
                self._end_gate(lane.gate)

    def _end_gate(self, gate: Gate) -> None:
        del self._gates[gate.key]
        self._probing.pop(gate, None)
        self._shut.get(gate.tree, {}).pop(gate, None)
        rooms = self._shut_for_room.get(gate.shape, {})
        rooms.pop(gate, None)
        if not rooms:
            self._shut_for_room.pop(gate.shape, None)

    def age(self, now_ms: int) -> None:
        """Those who have waited long enough rise."""
        while self._ageing and self._ageing[0][0] <= now_ms:
            at_ms, _, line = heappop(self._ageing)
            if line.ageing_at_ms == at_ms:
                line.ageing_at_ms = 0
                if line.count:
                    self._lead(line, now_ms)

    # Places

    def _show(self, lane: Lane) -> None:
        """The first of a lane may have changed: the lane gets its place."""
        line = lane.lines.first()
        if line is None:
            self._hide(lane, Where.NOWHERE if lane.where is not Where.BLOCKED else Where.BLOCKED)
        elif lane.where is Where.BLOCKED:
            if lane.roomless and _rises_above(line, lane.below):
                del self._roomless[lane.gate.shape][lane]
                self.unblock(lane)
        elif lane.where is Where.FRONT:
            lane.row.front.put(lane, line.key)
            self._rank_row(lane.row)
        elif lane.where is Where.STORE:
            self._store_lane(lane, line)
        elif lane.where is Where.NOWHERE:
            lane.where = Where.STORE if lane.gate.shut or lane.gate.probing else Where.FRONT
            self._show(lane)

    def _hide(self, lane: Lane, where: Where) -> None:
        """The lane leaves its place."""
        was, lane.where = lane.where, where
        if was is Where.FRONT:
            lane.row.front.drop(lane)
            self._rank_row(lane.row)
        elif was is Where.STORE:
            cell = lane.gate.cells[lane.row.space]
            cell.lanes.drop(lane)
            self._rank_cell(lane.gate, cell)

    def _store_lane(self, lane: Lane, line: Line) -> None:
        cell = lane.gate.cells.get(lane.row.space)
        if cell is None:
            cell = lane.gate.cells[lane.row.space] = Cell(lane.row.space, self.turns)
        level, _, _, requested_at_s, name = line.key
        cell.lanes.put(lane, (level, 0, lane.row.account.share, requested_at_s, name))
        self._rank_cell(lane.gate, cell)
        if lane.gate.shut is Parked.ROOM and _rises_above(line, lane.gate.below):
            self._reopen(lane.gate)

    def _rank_cell(self, gate: Gate, cell: Cell) -> None:
        lane = cell.lanes.first()
        if lane is None:
            gate.store.drop(cell)
            del gate.cells[cell.space]
        else:
            level, _, share, requested_at_s, name = lane.key
            gate.store.put(cell, (level, cell.space.account.share, share, requested_at_s, name))

    def _rank_row(self, row: Row) -> None:
        lane = row.front.first()
        if lane is None:
            row.space.front.drop(row)
        else:
            level, _, _, requested_at_s, name = lane.key
            row.space.front.put(row, (level, 0, row.account.share, requested_at_s, name))
        self._rank_space(row.space)

    def _rank_space(self, space: Space) -> None:
        row = space.front.first()
        if row is None:
            self._front.drop(space)
        else:
            level, _, share, requested_at_s, name = row.key
            self._front.put(space, (level, space.account.share, share, requested_at_s, name))

    def share_changed(self, row: Row) -> None:
        """A queue's share, and with it its workspace's, was counted anew."""
        if row.turn:
            self._rank_row(row)
        elif row.space.turn:
            self._rank_space(row.space)
        self._changes.append(row)
        if len(self._changes) > CHANGES_MAX:
            self._changes_before += len(self._changes)
            self._changes.clear()

    def _catch_up(self, gate: Gate) -> None:
        """A store is put in order for the shares of now."""
        last = self._changes_before + len(self._changes)
        if gate.since == last:
            return
        changed = self._changes[max(0, gate.since - self._changes_before) :]
        if gate.since < self._changes_before or len(changed) > len(gate.lanes):
            changed = [lane.row for lane in gate.lanes]
        kind = gate.kind
        for row in dict.fromkeys(changed):
            cell = gate.cells.get(row.space)
            if cell is not None:
                lane = row.lanes.get(kind)
                if lane is not None and lane.gate is gate and lane.where is Where.STORE:
                    level, _, _, requested_at_s, name = lane.key
                    cell.lanes.put(lane, (level, 0, row.account.share, requested_at_s, name))
                self._rank_cell(gate, cell)
        gate.since = last

    # Whose turn it is

    def first(self) -> Line | None:
        """The line whose turn it is."""
        while True:
            space, gate = self._front.first(), self._first_ajar()
            cell = gate.store.first() if gate is not None else None
            if gate is not None and cell is not None and (space is None or cell.key < space.key):
                lane = cell.lanes.first()
            else:
                lane = _first_lane(space) if space is not None else None
            if lane is None:
                return None
            if lane.gate.full:
                self.shut(lane.gate, Parked.QUOTA)
            if lane.gate.shut is None:
                return self._hand_out(lane)
            if lane.where is Where.FRONT:
                self._store(lane)

    def _hand_out(self, lane: Lane) -> Line | None:
        line = lane.lines.first()
        if line is not None:
            self._unseen.pop(line, None)
            self.looked_at += 1
        return line

    def _first_ajar(self) -> Gate | None:
        """Of the gates that are ajar, the one whose first goes first."""
        best: Gate | None = None
        best_key: Key | None = None
        for gate in tuple(self._probing):
            if gate.wakers and not any(fits(gate.shape) for fits in gate.wakers):
                self.shut(gate, Parked.ROOM, gate.below)  # somebody else has the room by now
                continue
            self._catch_up(gate)
            cell = gate.store.first()
            if cell is None:
                gate.probing = False
                del self._probing[gate]
            elif best_key is None or cell.key < best_key:
                best, best_key = gate, cell.key
        return best

    def _store(self, lane: Lane) -> None:
        """From the front to the store."""
        self._hide(lane, Where.STORE)
        self._show(lane)

    # Parking and waking

    def shut(self, gate: Gate, on: Parked, below: int | None = None) -> None:
        """None behind this gate is looked at until it is woken. What is in front moves when it comes up."""
        if gate.shut is Parked.ROOM and gate.below is not None and on is Parked.QUOTA:
            self._shut_no_more_for_room(gate)
        elif gate.shut is not None:
            return
        gate.shut = on
        gate.below = below
        gate.probing = False
        gate.wakers = ()
        self._probing.pop(gate, None)
        if on is Parked.QUOTA:
            self._shut.setdefault(gate.tree, {})[gate] = None
        else:
            self._shut_for_room.setdefault(gate.shape, {})[gate] = None

    def _ajar(self, gate: Gate, *wakers: Callable[[Shape], bool]) -> None:
        """Those behind it come one after another; as long as one of `wakers` says so, if there are any."""
        gate.shut = None
        gate.wakers = wakers
        gate.probing = True
        self._probing[gate] = None

    def wake_tree(self, tree: str) -> None:
        """Quota of this tree was freed."""
        shut = self._shut.get(tree)
        if shut:
            for gate in [gate for gate in shut if not gate.full]:
                del shut[gate]
                self._ajar(gate)
            self._open_surplus()

    def park_for_room(self, lane: Lane, below: int | None = None) -> None:
        """It has no room, and whoever may use no other nodes has none either.

        Where there might be some if nodes were not reserved, that is so `below` or at the level of the one who asked.
        """
        if lane.gate.apart:
            self._roomless.setdefault(lane.gate.shape, {})[lane] = None
            self.block(lane)
            lane.roomless = True
            lane.below = below
        else:
            self.shut(lane.gate, Parked.ROOM, below)

    def _reopen(self, gate: Gate) -> None:
        """Somebody came who may use nodes that are reserved."""
        self._shut_no_more_for_room(gate)
        self._ajar(gate)
        self._open_surplus()

    def _shut_no_more_for_room(self, gate: Gate) -> None:
        rooms = self._shut_for_room[gate.shape]
        del rooms[gate]
        if not rooms:
            del self._shut_for_room[gate.shape]

    def wake_room(self, fits: Callable[[Shape], bool], serves: str) -> None:
        """Room was freed: whoever is told to fit may be looked at again. Each shape is asked for once."""
        for shape in [shape for shape in self._roomless if fits(shape)]:
            self._wake_roomless(shape, serves)
        if serves:
            return
        for shape in [shape for shape in self._shut_for_room if fits(shape)]:
            for gate in self._shut_for_room.pop(shape):
                self._ajar(gate, fits)
        for gate in self._probing:
            if gate.wakers and fits not in gate.wakers and fits(gate.shape):
                gate.wakers = (*gate.wakers, fits) if len(gate.wakers) < WAKERS_MAX else ()
        self._open_surplus()

    def _wake_roomless(self, shape: Shape, serves: str) -> None:
        lanes = self._roomless[shape]
        for lane in [lane for lane in lanes if serves in ("", lane.row.space.name)]:
            del lanes[lane]
            self.unblock(lane)
        if not lanes:
            del self._roomless[shape]

    def _open_surplus(self) -> None:
        """All gates that are ajar are compared each time, so there must not be too many."""
        while len(self._probing) > PROBING_MAX:
            gate = next(iter(self._probing))
            del self._probing[gate]
            gate.probing = False
            for lane in [lane for cell in gate.cells.values() for lane in cell.lanes]:
                self._hide(lane, Where.NOWHERE)
                self._show(lane)

    def block(self, lane: Lane) -> None:
        """A limit of the lane's own is in the way."""
        self._hide(lane, Where.BLOCKED)

    def unblock(self, lane: Lane) -> None:
        """It may not be any more."""
        if lane.where is Where.BLOCKED:
            lane.where = Where.NOWHERE
            lane.roomless = False
            self._show(lane)
            if lane.where is Where.STORE and lane.gate.shut is Parked.ROOM and lane.gate.below is not None:
                self._reopen(lane.gate)  # its first may be the one for whom nodes are reserved

    def park_line(self, line: Line) -> None:
        """This line alone is not looked at until all are woken."""
        line.other = True
        self._others[line] = None
        line.lane.lines.drop(line)
        self._show(line.lane)

    def wake_all(self, now_ms: int) -> None:
        """Everything may be looked at again."""
        others = list(self._others)
        self._others.clear()
        for line in others:
            line.other = False
            self._lead(line, now_ms)
        for gate in self._gates.values():
            if gate.shut is not None:
                self._ajar(gate)
            for lane in gate.lanes:
                self.unblock(lane)
                self._unseen.update(dict.fromkeys(lane.by_name.values()))
        self._shut.clear()
        self._shut_for_room.clear()
        self._roomless.clear()
        self._open_surplus()

    def short_of_quota(self) -> Iterator[Lane]:
        """Of each gate that is shut for quota, the lane whose turn it is."""
        for shut in self._shut.values():
            for gate in shut:
                self._catch_up(gate)
                cell = gate.store.first()
                lane = cell.lanes.first() if cell is not None else None
                if lane is not None:
                    yield lane

    def unseen(self) -> Line | None:
        """A line whose first nobody has looked at."""
        line = next(iter(self._unseen), None)
        if line is not None:
            del self._unseen[line]
        return line

    def lines(self) -> Iterator[Line]:
        """All lines."""
        return (line for gate in self._gates.values() for lane in gate.lanes for line in lane.by_name.values())


def _rises_above(line: Line, below: int | None) -> bool:
    return below is not None and line.level > below


def _first_lane(space: Space) -> Lane:
    row = space.front.first()
    lane = row.front.first() if row is not None else None
    assert lane is not None
    return lane
