"""Whether a shape can ever fit: judged against what pools declare or have ever had, never against what is free."""

from __future__ import annotations

import msgspec

from ..errors import FORBIDDEN, INVALID, NEVER_FITS, UNKNOWN_GPU, Refused
from .resources import Capacity, Shape


class PoolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The largest worker a pool declares or has ever had, allocatable.

    `serves` is the one workspace whose work it takes; empty: anybody's.
    """

    pool: str
    largest: Capacity
    serves: str = ""


def check_feasible(shape: Shape, offers: tuple[PoolOffer, ...], workspace_id: str = "") -> None:
    """Raises `Refused` with the numbers when no pool could ever hold this shape; a pool that is away still counts.

    While no pool is known, every shape that is one passes.
    """
    _refuse_nonsense(shape)
    if not offers:
        return
    offers = _serving(offers, workspace_id)
    named = tuple(offer for offer in offers if shape.pool in ("", offer.pool))
    if not named:
        names = ", ".join(sorted(offer.pool for offer in offers))
        raise Refused(f"There is no pool {shape.pool!r}.", fix=f"Pools you may use: {names}.", code=NEVER_FITS)
    if any(offer.largest.fits(shape) for offer in named):
        return
    _refuse_gpu(shape, named)
    _refuse_size(shape, named)


def _serving(offers: tuple[PoolOffer, ...], workspace_id: str) -> tuple[PoolOffer, ...]:
    serving = tuple(offer for offer in offers if offer.serves in ("", workspace_id))
    if not serving:
        names = ", ".join(sorted({offer.pool for offer in offers}))
        raise Refused(
            "No pool serves this workspace.",
            f"Code runs as plain processes in {names}: without isolation a pool serves one workspace.",
            'Add a pool for this workspace, or set isolation = "trusted" where all workspaces trust each other.',
            FORBIDDEN,
        )
    return serving


def _refuse_nonsense(shape: Shape) -> None:
    """A negative quantity would make room instead of taking it."""
    if shape.cpu_milli <= 0 or shape.memory_mib <= 0 or shape.gpu_count < 0:
        raise Refused(
            f"cpu={shape.cpu_milli / 1000:g}, memory={shape.memory_mib} MiB, gpu_count={shape.gpu_count} is no shape.",
            fix="Ask for some CPU and memory, and for no fewer than 0 cards.",
            code=INVALID,
        )


def _refuse_gpu(shape: Shape, offers: tuple[PoolOffer, ...]) -> None:
    types = sorted({offer.largest.gpu_type for offer in offers if offer.largest.gpu_count})
    wanted = shape.gpu_types
    if shape.gpu_count and not any(kind in types for kind in wanted or types):
        what = f"No pool has GPUs of type {' or '.join(wanted)}." if wanted else "No pool has GPUs."
        if not types:
            fix = "Leave gpu and gpu_count out, or add a pool with cards."
            raise Refused(what, "There are no GPUs that you may use.", fix, UNKNOWN_GPU)
        raise Refused(what, f"GPU types you may use: {', '.join(types)}.", "Ask for one of those.", UNKNOWN_GPU)


def _refuse_size(shape: Shape, offers: tuple[PoolOffer, ...]) -> None:
    cpu = max(offer.largest.cpu_milli for offer in offers) / 1000
    memory = max(offer.largest.memory_mib for offer in offers)
    cards = max(offer.largest.gpu_count for offer in offers)
    raise Refused(
        f"No worker was ever large enough for cpu={shape.cpu_milli / 1000:g}, memory={shape.memory_mib} MiB, "
        f"gpu_count={shape.gpu_count}.",
        f"The largest had {cpu:g} CPUs, {memory} MiB and {cards} cards.",
        "Ask for less, or add a pool with larger workers.",
        NEVER_FITS,
    )
