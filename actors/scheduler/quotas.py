"""Quotas that lend each other what they do not use, in trees of cohorts.

Each resource of each flavor is counted by itself: a purse a quota or cohort, each with its parent's. What a purse keeps
(its total less what it lends) is its own whatever the others do; beyond that it draws on its parent's, as far as it may
borrow. So the parent's use is the sum of what its children draw, and one walk from a quota to the root answers whether
an amount is to be had, and takes it. A resource that a quota sets no limits for is counted nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ...model.queues import Cohort, Flavor, FlavorLimits, Limits, Queueing, Quota, Reclaim, Within
from ...model.reasons import Lack
from ...model.resources import Amount, Shape, amount_of

RESOURCES: Final = ("cpu", "memory", "gpu")
NO_LIMITS: Final = Limits()


class Purse:
    """One resource of one flavor at a quota or a cohort: what it has, lends and uses; all in the units of `Amount`."""

    __slots__ = (
        "borrowing", "flavor", "kept", "lending", "nominal", "owner", "parent", "resource", "saved", "total", "used",
    )  # fmt: skip

    def __init__(self, owner: str, flavor: str, resource: str, limits: Limits) -> None:
        self.owner = owner
        self.flavor = flavor
        self.resource = resource
        self.nominal = limits.nominal
        self.borrowing = limits.borrowing
        self.lending = limits.lending
        self.parent: Purse | None = None
        self.total = limits.nominal  # of this and all below it, as far as they lend
        self.kept = 0  # of the total, what nobody else may have
        self.used = 0
        self.saved = 0  # of an outermost purse: what is kept for one who waits long

    @property
    def root(self) -> Purse:
        """The one that has no parent."""
        purse = self
        while purse.parent is not None:
            purse = purse.parent
        return purse

    def join(self, parent: Purse) -> None:
        """Become a child of this one. Children join before their parent joins its own."""
        self.parent = parent
        self.kept = 0 if self.lending is None else max(0, self.total - self.lending)
        parent.total += self.total - self.kept

    def free(self) -> int:
        """How much more may be used here."""
        if self.parent is None:
            return max(0, self.total - self.used)
        above = self.parent.free()
        if self.borrowing is not None:
            above = min(above, self.total - self.kept - max(0, self.used - self.kept) + self.borrowing)
        return max(0, self.kept - self.used) + max(0, above)

    def missing(self, amount: int) -> int:
        """How much would have to be free beyond what is, for this amount."""
        if self.parent is None:
            return max(0, amount - self.total + self.used)
        need = amount - max(0, self.kept - self.used)
        if need <= 0:
            return 0
        above = self.parent.missing(need)
        if self.borrowing is not None:
            drawn = max(0, self.used - self.kept)
            above = max(above, need - (self.total - self.kept - drawn + self.borrowing))
        return max(0, above)

    def most(self) -> int:
        """How much could ever be used here, if nobody else used any."""
        if self.parent is None:
            return self.total
        above = self.parent.most()
        if self.borrowing is not None:
            above = min(above, self.total - self.kept + self.borrowing)
        return self.kept + above

    def short_at(self, amount: int) -> Purse | None:
        """Whose limit is in the way of this amount, the lowest one first; None where it fits."""
        purse, need = self, amount
        while purse.parent is not None:
            need -= max(0, purse.kept - purse.used)
            if need <= 0:
                return None
            drawn = max(0, purse.used - purse.kept)
            if purse.borrowing is not None and purse.total - purse.kept - drawn + purse.borrowing < need:
                return purse
            purse = purse.parent
        return purse if purse.total - purse.used < need else None

    def take(self, amount: int) -> None:
        """Use so much more; whoever calls has asked whether it is to be had, or restores what runs."""
        purse: Purse | None = self
        while purse is not None and amount > 0:
            drawn = amount - max(0, purse.kept - purse.used)
            purse.used += amount
            amount, purse = drawn, purse.parent

    def give(self, amount: int) -> None:
        """Use so much less."""
        purse: Purse | None = self
        while purse is not None and amount > 0:
            drawn = min(amount, purse.used - purse.kept)
            purse.used -= amount
            amount, purse = drawn, purse.parent

    @property
    def borrowed(self) -> int:
        """What is used beyond its own."""
        return max(0, self.used - self.total)


Demand = tuple[tuple[Purse, int], ...]  # what one member takes from each purse that counts it; never zero


class Option(msgspec.Struct, frozen=True):
    """A flavor that would do for a request: the shape as it must be placed there, and what a member takes of it."""

    flavor: str
    shape: Shape
    demand: Demand
    gpu_name: str


class QuotaState:
    """A quota with its purses, flavor by flavor in the order in which they are tried."""

    __slots__ = ("config", "flavors", "lends", "name", "preempts", "tree")

    def __init__(self, config: Quota, tree: str) -> None:
        self.config = config
        self.name = config.name
        self.tree = tree  # the name of its outermost cohort, or "quota NAME" without one
        self.preempts = config.preempt is not Within.NEVER or config.reclaim is not Reclaim.NEVER
        self.lends = False  # some purse of the tree keeps what it does not lend
        self.flavors: list[tuple[Flavor, tuple[Purse | None, ...]]] = []

    def options(self, shape: Shape) -> tuple[Option, ...]:
        """The flavors that would do: what the shape prefers first, then in the quota's order."""
        if not self.config.flavors:
            return (Option("", shape, (), ""),)
        found = [
            (
                shape.preference(narrowed.gpu_types[0]) if flavor.gpu_type and shape.gpu_count else 0,
                place,
                flavor,
                narrowed,
            )
            for place, (flavor, _) in enumerate(self.flavors)
            if (narrowed := narrow(shape, flavor)) is not None
        ]
        found.sort(key=lambda entry: entry[:2])
        return tuple(self._option(place, flavor, narrowed) for _, place, flavor, narrowed in found)

    def _option(self, place: int, flavor: Flavor, shape: Shape) -> Option:
        amounts = in_order(amount_of(shape))
        purses = self.flavors[place][1]
        demand = tuple((purse, amount) for purse, amount in zip(purses, amounts) if purse is not None and amount > 0)
        types = shape.gpu_types if len(shape.gpu_types) == 1 else ("gpu",)
        return Option(flavor.name, shape, demand, flavor.gpu_type or shape.accelerator or types[0])


def in_order(amount: Amount) -> tuple[int, int, int]:
    """The numbers of an amount, in the order of `RESOURCES`."""
    return amount.cpu_milli, amount.memory_mib, amount.gpu_milli


def narrow(shape: Shape, flavor: Flavor) -> Shape | None:
    """The shape as it must be placed to stay within a flavor; None where it asks for something else."""
    if flavor.pool and shape.pool not in ("", flavor.pool):
        return None
    if flavor.gpu_type and shape.gpu_count and not shape.takes_type(flavor.gpu_type):
        return None
    wanted = dict(shape.labels)
    if any(wanted.get(key, value) != value for key, value in flavor.labels.items()):
        return None
    return msgspec.structs.replace(
        shape,
        pool=flavor.pool or shape.pool,
        gpu_types=(flavor.gpu_type,) if flavor.gpu_type else shape.gpu_types,
        labels=tuple(sorted({**wanted, **flavor.labels}.items())),
    )


def resource_of(option: Option, purse: Purse) -> str:
    """What people call what a purse counts: "cpu", "memory", or the type of cards."""
    return option.gpu_name if purse.resource == "gpu" else purse.resource


def lacks(option: Option, size: int) -> tuple[Lack, ...]:
    """How much more of what is needed for so many members: nothing where there is quota."""
    return tuple(
        Lack(resource_of(option, purse), purse.missing(amount * size))
        for purse, amount in option.demand
        if purse.short_at(amount * size) is not None
    )


def short_at(option: Option, size: int) -> tuple[Purse, ...]:
    """Whose limits are in the way of so many members: none where there is quota."""
    found = (purse.short_at(amount * size) for purse, amount in option.demand)
    return tuple(purse for purse in found if purse is not None)


def fits(option: Option, size: int) -> bool:
    """Whether there is quota for so many members."""
    return all(purse.short_at(amount * size) is None for purse, amount in option.demand)


def could_fit(option: Option, size: int) -> bool:
    """Whether there could ever be quota for so many members."""
    return all(purse.most() >= amount * size for purse, amount in option.demand)


class Quotas:
    """All quotas of a configuration, with nothing used."""

    def __init__(self, queueing: Queueing) -> None:
        self._cohorts = {cohort.name: cohort for cohort in queueing.cohorts}
        self._flavors = {flavor.name: flavor for flavor in queueing.flavors}
        self.states = {quota.name: QuotaState(quota, self._tree_of(quota)) for quota in queueing.quotas}
        self._cohort_purses: dict[tuple[str, str, str], Purse] = {}
        own = [self._open_quota(state) for state in self.states.values()]
        self._open_cohorts()
        self._join([purse for purses in own for purse in purses])
        self._mark_lenders()

    def _tree_of(self, quota: Quota) -> str:
        name = quota.cohort
        while name and self._cohorts[name].parent:
            name = self._cohorts[name].parent
        return f"cohort {name}" if name else f"quota {quota.name}"

    def _open_quota(self, state: QuotaState) -> list[Purse]:
        for limits in state.config.flavors:
            purses = tuple(
                Purse(state.name, limits.flavor, resource, found) if found is not None else None
                for resource, found in zip(RESOURCES, (limits.cpu, limits.memory, limits.gpu))
            )
            state.flavors.append((self._flavors[limits.flavor], purses))
        opened = [purse for _, purses in state.flavors for purse in purses if purse is not None]
        for purse in opened:
            for cohort in self._path(state.config.cohort):
                self._cohort_purse(cohort, purse.flavor, purse.resource)
        return opened

    def _open_cohorts(self) -> None:
        """Cohorts with quota of their own lend it even if no quota is right below them."""
        for cohort in self._cohorts.values():
            for limits in cohort.flavors:
                for resource, found in zip(RESOURCES, (limits.cpu, limits.memory, limits.gpu)):
                    if found is not None:
                        for above in self._path(cohort.name):
                            self._cohort_purse(above, limits.flavor, resource)

    def _path(self, name: str) -> Iterator[Cohort]:
        while name:
            cohort = self._cohorts[name]
            yield cohort
            name = cohort.parent

    def _cohort_purse(self, cohort: Cohort, flavor: str, resource: str) -> None:
        key = (cohort.name, flavor, resource)
        if key not in self._cohort_purses:
            limits = next((own for own in cohort.flavors if own.flavor == flavor), FlavorLimits(flavor=flavor))
            found = dict(zip(RESOURCES, (limits.cpu, limits.memory, limits.gpu)))[resource]
            self._cohort_purses[key] = Purse(cohort.name, flavor, resource, found or NO_LIMITS)

    def _join(self, own: list[Purse]) -> None:
        """Leaves first: a purse's total stands before it lends any of it."""
        for purse in own:
            cohort = self.states[purse.owner].config.cohort
            if cohort:
                purse.join(self._cohort_purses[cohort, purse.flavor, purse.resource])
        depths = sorted(self._cohort_purses, key=lambda key: -sum(1 for _ in self._path(key[0])))
        for name, flavor, resource in depths:
            parent = self._cohorts[name].parent
            if parent:
                self._cohort_purses[name, flavor, resource].join(self._cohort_purses[parent, flavor, resource])

    def _mark_lenders(self) -> None:
        keeping: dict[str, None] = {}
        for state in self.states.values():
            for _, purses in state.flavors:
                for purse in purses:
                    if purse is not None and any(above.kept for above in walk(purse)):
                        keeping[state.tree] = None
        for state in self.states.values():
            state.lends = state.tree in keeping


def walk(purse: Purse) -> Iterator[Purse]:
    """A purse and those above it."""
    above: Purse | None = purse
    while above is not None:
        yield above
        above = above.parent
