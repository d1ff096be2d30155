"""How much of a workspace's work may run at a time, whatever quota and room there is."""

from __future__ import annotations

from ...model.queues import Share
from ...model.reasons import HoldKind, Lack, Reason
from ...model.resources import CARD_MILLI, Shape

_RESOURCES = ("containers", "cpu", "gpu")


def over_limit(share: Share, used: tuple[int, int, int], shape: Shape, size: int) -> Reason | None:
    """The first limit in the way of so many containers more; `used`: containers, thousandths of CPUs, of cards."""
    max_gpu_milli = None if share.max_gpus is None else share.max_gpus * CARD_MILLI
    limits = (share.max_containers, share.max_cpu_milli, max_gpu_milli)
    wanted = (size, shape.cpu_milli * size, shape.gpu_total_milli * size)
    for resource, limit, taken, more in zip(_RESOURCES, limits, used, wanted):
        if limit is not None and more and taken + more > limit:
            lack = Lack(resource, taken + more - limit)
            return Reason(kind=HoldKind.CONCURRENCY, lacks=(lack,), wanted=limit)
    return None
