"""What a hold is in words: what is lacking and where, who has it, what would change it. Pure; times are UTC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from .nodes import NodeState
from .reasons import Excluded, Holder, HoldKind, Lack, Reason
from .states import WorkerState

_DAY_S: Final = 86_400.0
_SEVERAL: Final = 5  # names in a row, at most


def sentence(reason: Reason, now_s: float = 0.0) -> str:
    """The hold in short sentences, the most important one first; `now_s` 0: nobody knows what time it is."""
    return " ".join(part for part in _parts(reason, now_s) if part)


def _parts(reason: Reason, now_s: float) -> Iterator[str]:
    with_time = _WORDS_AT.get(reason.kind)
    yield _WORDS[reason.kind](reason) if with_time is None else with_time(reason, now_s)
    yield _held_by(reason, now_s)
    yield _place(reason.ahead)


def _room(reason: Reason, now_s: float) -> str:
    if reason.free:
        return _spread(reason, now_s)
    words = f"{_fitting(reason)} room" if reason.fits < reason.wanted else "No worker has room for it"
    needed = f": {_needed(reason)}" if reason.lacks else ""
    return f"{words}{_in_pool(reason)}{needed}{_shut(reason.excluded, now_s)}."


def _spread(reason: Reason, now_s: float) -> str:
    kind = _card_kind(reason)
    free = _quantity(Lack(kind, reason.free), "")
    spread = f"{free} {'is' if reason.free == 1000 else 'are'} free, at most {reason.most / 1000:g} on one node"
    needed = f"{_needed(reason)} there{_shut(reason.excluded, now_s)}"
    return f"No one node has room for it{_in_pool(reason)}: {spread}; {needed}."


def _fitting(reason: Reason) -> str:
    if not reason.fits:
        return f"None of {reason.wanted} has"
    return f"Only {reason.fits} of {reason.wanted} {'has' if reason.fits == 1 else 'have'}"


def _starting(reason: Reason) -> str:
    return f"A worker with room for it is starting{_in_pool(reason)}."


def _quota(reason: Reason) -> str:
    alike = {lack.resource.casefold() for lack in reason.lacks}
    flavor = f", flavor {reason.flavor}" if reason.flavor and reason.flavor.casefold() not in alike else ""
    if not reason.lacks:
        return f"Nothing is left for it in quota {reason.quota}{flavor}."
    return f"{_needed(reason)} in quota {reason.quota}{flavor}."


def _concurrency(reason: Reason) -> str:
    """The limit is that of what is lacking; without that, of containers."""
    resource = reason.lacks[0].resource if reason.lacks else "containers"
    limit = _quantity(Lack(resource, reason.wanted), "")
    more = f": {_needed(reason)}" if reason.lacks else ", and that many run"
    return f"Its workspace may have {limit} at a time{more}."


def _topology(reason: Reason, now_s: float) -> str:
    if reason.detail:
        return _ended(reason.detail)
    some = f"only {reason.fits} of {reason.wanted} {'fits' if reason.fits == 1 else 'fit'}"
    fit = some if reason.fits else f"none of {reason.wanted} fits"
    more = f"; {_needed(reason)} there" if reason.lacks else ""
    named = f"Topology {reason.topology}: " if reason.topology else ""
    words = f"{named}{fit} in one {reason.level or 'domain'}{_shut(reason.excluded, now_s)}{more}."
    return words[0].upper() + words[1:]


def _gang(reason: Reason) -> str:
    if reason.detail:
        return _by_pool(reason)
    return f"Its workers are starting{_in_pool(reason)}: {reason.fits} of {reason.wanted} containers have theirs."


def _reserved(reason: Reason, now_s: float) -> str:
    shut = _shut(reason.excluded, now_s)
    return f"The room that it needs is kept for a gang that waits longer{_in_pool(reason)}{shut}."


def _guard(reason: Reason) -> str:
    return _by_pool(reason) or "The provisioning guard holds the order of a worker; it goes out by itself."


def _maximum(reason: Reason) -> str:
    told = _by_pool(reason) or f"Pool {reason.pool} has all the workers that it may have."
    # where its nodes are what it has too few of, or it is a cluster's, another number would change nothing
    return told if reason.detail and "maximum" not in reason.detail else f"{told} Wait, or raise its `max_workers`."


def _back_off(reason: Reason) -> str:
    told = _by_pool(reason) or f"The last workers of pool {reason.pool} ended early; it waits a moment."
    return f"{told} `levers9 worker list --gone` says why they ended."


def _preempting(_: Reason) -> str:
    return "Others are stopping to make room for it."


def _queue_held(reason: Reason) -> str:
    if reason.detail:
        return f"{_ended(reason.detail)} Make one with `levers9 queue put`, or stop the call."
    return f"Quota {reason.quota} is held: it admits nothing new until `levers9 quota release {reason.quota}`."


def _leader(_: Reason) -> str:
    return "A new leader waits for its workers to report before it places anything."


def _no_pool(reason: Reason) -> str:
    named = f"Pool {reason.pool} is not there" if reason.pool else "No pool that would take it is there"
    return f"{named}. Add one with `levers9 pool create` or `levers9 cluster join`, or wait until it is back."


def _unreported(reason: Reason) -> str:
    return (
        f"Nothing is known yet of the nodes of cluster {reason.pool}: its agent has never reported. "
        f"`levers9 cluster list` says where it stands."
    )


_WORDS_AT: Final[dict[HoldKind, Callable[[Reason, float], str]]] = {
    HoldKind.ROOM: _room,
    HoldKind.TOPOLOGY: _topology,
    HoldKind.RESERVED: _reserved,
}


def _cluster(reason: Reason) -> str:
    told = _by_pool(reason) or f"The cluster of pool {reason.pool} is away."
    return f"{told} `levers9 cluster list` says how it stands."


_WORDS: Final[dict[HoldKind, Callable[[Reason], str]]] = {
    HoldKind.STARTING: _starting,
    HoldKind.QUOTA: _quota,
    HoldKind.CONCURRENCY: _concurrency,
    HoldKind.GANG: _gang,
    HoldKind.GUARD: _guard,
    HoldKind.MAXIMUM: _maximum,
    HoldKind.BACK_OFF: _back_off,
    HoldKind.PREEMPTING: _preempting,
    HoldKind.QUEUE_HELD: _queue_held,
    HoldKind.LEADER: _leader,
    HoldKind.NO_POOL: _no_pool,
    HoldKind.CLUSTER: _cluster,
    HoldKind.UNREPORTED: _unreported,
}


def _by_pool(reason: Reason) -> str:
    """What the pool says itself, behind its name."""
    said = _ended(reason.detail)
    return f"Pool {reason.pool}: {said}" if reason.pool and said else said


def _ended(detail: str) -> str:
    return detail if not detail or detail.endswith((".", "!", "?")) else f"{detail}."


def _in_pool(reason: Reason) -> str:
    return f" in pool {reason.pool}" if reason.pool else ""


def _needed(reason: Reason) -> str:
    return f"{_listed([_quantity(lack, 'more ') for lack in reason.lacks])} needed"


def _quantity(lack: Lack, more: str) -> str:
    """ "8 more GB200", "0.5 more CPUs", "2 GiB more memory"; without `more` just so much of it."""
    match lack.resource:
        case "memory":
            size = f"{lack.amount / 1024:g} GiB" if lack.amount >= 1024 else f"{lack.amount} MiB"
            return f"{size} {more or 'of '}memory"
        case "cpu":
            return f"{lack.amount / 1000:g} {more}CPU{'' if lack.amount == 1000 else 's'}"
        case "nodes" | "containers":
            return f"{lack.amount} {more}{plural(lack.resource[:-1], lack.amount)}"
        case "gpu":
            return f"{lack.amount / 1000:g} {more}card{'' if lack.amount == 1000 else 's'}"
    return f"{lack.amount / 1000:g} {more}{lack.resource}"


def _shut(excluded: tuple[Excluded, ...], now_s: float) -> str:
    """Nodes that would help, by what is the matter with them."""
    whys = dict.fromkeys((each.why, each.pool if each.why == NodeState.STALE else "") for each in excluded)
    parts = []
    for why, pool in whys:
        alike = [each for each in excluded if each.why == why and pool in ("", each.pool)]
        parts.append(_matter(why, alike, now_s))
    return f"; {_listed(parts)}" if parts else ""


def _matter(why: str, alike: list[Excluded], now_s: float) -> str:
    if why == NodeState.STALE:
        return _stale(alike, now_s)
    if why == NodeState.FULL:
        return f"others have all cards of {_nodes(alike)}"
    if why == NodeState.CARDS_UNKNOWN:
        return f"the last worker on {_nodes(alike)} could not tell which cards are its own"
    if why == WorkerState.UNKNOWN:
        return f"nothing is heard from what runs on {_nodes(alike)}"
    return f"{_nodes(alike)} {'is' if sum(each.count for each in alike) == 1 else 'are'} {why}"


def _nodes(alike: list[Excluded]) -> str:
    """Those with a name by it, the others by how many they are."""
    named = [each.node for each in alike if each.node]
    counted = [_counted(each) for each in alike if not each.node]
    return _listed([*named, *counted])


def _counted(nameless: Excluded) -> str:
    return f"{nameless.count} {plural('node', nameless.count)} of {nameless.pool}"


def _stale(alike: list[Excluded], now_s: float) -> str:
    """A cluster reports all of its nodes at once."""
    whose = f"cluster {alike[0].pool}" if alike[0].pool else _nodes(alike)
    since_s = min(each.since_s for each in alike)
    if not since_s or now_s <= since_s:
        return f"the last report of {whose} is too old"
    return f"the last report of {whose} is {_age(now_s - since_s)} old"


def _age(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"


def _held_by(reason: Reason, now_s: float) -> str:
    """Who has what is lacking, and when the first of it is free at the latest."""
    if not reason.holders:
        return ""
    kind = _card_kind(reason)
    told = "; ".join(_holder(holder, kind) for holder in reason.holders)
    ends = min((holder.frees_by_s for holder in reason.holders if holder.frees_by_s), default=0.0)
    several = sum(holder.containers for holder in reason.holders) > 1
    first = f"; {'the first' if several else 'it'} ends {_by(ends, now_s)}" if ends else ""
    words = f"{told}{first}."
    return words if reason.holders[0].who else words[0].upper() + words[1:]


def _card_kind(reason: Reason) -> str:
    """What cards are lacking: "gpu" for any."""
    return next((lack.resource for lack in reason.lacks if lack.resource not in ("cpu", "memory", "nodes")), "gpu")


def _holder(holder: Holder, kind: str) -> str:
    count = f"{holder.containers} {plural('container', holder.containers)}"
    cards = _quantity(Lack(kind, holder.gpu_milli), "")
    if not holder.who:
        return f"other workspaces hold {cards}" if holder.gpu_milli else f"other workspaces run {count}"
    return f"{holder.who} ({count}) holds {cards}" if holder.gpu_milli else f"{holder.who} runs {count}"


def _by(ends_s: float, now_s: float) -> str:
    """A limit is the latest: code may end sooner."""
    if now_s and ends_s <= now_s:
        return "any moment"
    at = datetime.fromtimestamp(ends_s, UTC)
    far = not now_s or ends_s - now_s > _DAY_S / 2
    return f"by {at:%Y-%m-%d %H:%M} UTC at the latest" if far else f"by {at:%H:%M} UTC at the latest"


def _place(ahead: int) -> str:
    if not ahead:
        return ""
    return f"{ahead} {plural('request', ahead)} of its queue {'goes' if ahead == 1 else 'go'} before it."


def plural(noun: str, count: int) -> str:
    """The noun for so many."""
    return noun if count == 1 else f"{noun}s"


def _listed(parts: list[str]) -> str:
    """ "a", "a and b", "a, b and 4 more"."""
    if len(parts) > _SEVERAL:
        parts = [*parts[: _SEVERAL - 1], f"{len(parts) - _SEVERAL + 1} more"]
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
