"""Who may wait for whom: the rule that no actor waits for a mailbox, as a graph that a test can check for circles.

See docs/decisions/0002-no-actor-waits-for-a-mailbox.md. A sender waits for a receiver only where a message of the class
`WhenFull.BLOCK` crosses an edge: the link's reader waits for the mailbox, then the link's window for the reader.
Inside one process nobody waits (`Post.send`), and a gateway never waits for a peer: it cuts off who is too slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .message import Message, WhenFull

BRAIN: Final = frozenset(  # in one process
    {"tasks", "scheduler", "pool", "pools", "clusters", "guard", "spawner", "leader", "supervisor"}
)
PEERS: Final = frozenset({"client", "worker", "agent", "gateway", "peer"})  # reached by a gateway, or are one

Edges = dict[str, frozenset[str]]


def blocking_edges(messages: Iterable[type[Message]], together: frozenset[str], never: frozenset[str]) -> Edges:
    """For each sender, the receivers for whose mailbox it may wait.

    `together` are the actors of one process; `never` are receivers for whom nobody waits.
    """
    found: dict[str, set[str]] = {}
    for message in messages:
        inside = message.sender in together and message.receiver in together
        if message.when_full is WhenFull.BLOCK and not inside and message.receiver not in never:
            found.setdefault(message.sender, set()).add(message.receiver)
    return {sender: frozenset(receivers) for sender, receivers in found.items()}


def circle(edges: Edges) -> tuple[str, ...]:
    """The names along one circle of waiting, () if there is none."""
    for start in sorted(edges):
        path = _way_back(edges, start)
        if path:
            return path
    return ()


def _way_back(edges: Edges, start: str) -> tuple[str, ...]:
    paths: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        for receiver in sorted(edges.get(path[-1], ())):
            if receiver == start:
                return path
            if receiver not in seen:
                seen.add(receiver)
                paths.append((*path, receiver))
    return ()
