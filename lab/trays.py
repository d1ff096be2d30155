"""Trays: nodes with cards, and the labels that GPU feature discovery and topograph set on them. Pure."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

TRAYS_PER_LEAF: Final = 4
_SPACE: Final = uuid.UUID("6c657665-7273-4900-8000-00000000001b")
_DRIVER: Final = ("580", "95", "05")
_CUDA: Final = ("13", "0")


class CardModel(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of card as the driver tells of it."""

    product: str  # as GPU feature discovery writes it
    family: str
    memory_mib: int
    compute: tuple[int, int]
    arch: str = "amd64"
    fabric: bool = False  # NVLink across nodes: they have cliques and domains
    mig: bool = False


CARDS: Final[dict[str, CardModel]] = {
    "GB200": CardModel(
        product="NVIDIA-GB200",
        family="blackwell",
        memory_mib=189471,
        compute=(10, 0),
        arch="arm64",
        fabric=True,
        mig=True,
    ),
    "B200": CardModel(product="NVIDIA-B200", family="blackwell", memory_mib=183359, compute=(10, 0), mig=True),
    "H200": CardModel(product="NVIDIA-H200", family="hopper", memory_mib=143771, compute=(9, 0), mig=True),
    "H100": CardModel(product="NVIDIA-H100-80GB-HBM3", family="hopper", memory_mib=81559, compute=(9, 0), mig=True),
    "A100-40": CardModel(product="NVIDIA-A100-SXM4-40GB", family="ampere", memory_mib=40960, compute=(8, 0), mig=True),
    "A100": CardModel(product="NVIDIA-A100-SXM4-80GB", family="ampere", memory_mib=81920, compute=(8, 0), mig=True),
    "A10G": CardModel(product="NVIDIA-A10G", family="ampere", memory_mib=23028, compute=(8, 6)),
    "L40S": CardModel(product="NVIDIA-L40S", family="ada-lovelace", memory_mib=46068, compute=(8, 9)),
    "L4": CardModel(product="NVIDIA-L4", family="ada-lovelace", memory_mib=23034, compute=(8, 9)),
    "T4": CardModel(product="Tesla-T4", family="turing", memory_mib=15360, compute=(7, 5)),
    "V100": CardModel(product="Tesla-V100-SXM2-16GB", family="volta", memory_mib=16384, compute=(7, 0)),
}


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A card of a tray. Its UUID follows from the tray's name and its place, so that it stays the same."""

    uuid: str
    place: int


class TrayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A tray as it was asked for. `address` is its own on loopback; its pods get others that begin alike."""

    name: str
    number: int
    gpu: str
    cards: tuple[Card, ...]
    cpu: int
    memory: str
    address: str
    domain: str  # the NVLink domain it was built into
    pods: int = 110

    @property
    def model(self) -> CardModel:
        """What its cards are."""
        return CARDS[self.gpu]


def plan_trays(
    lab: str, second_octet: int, *, trays: int, gpus: int, gpu: str, cpu: int, memory: str, trays_per_domain: int
) -> tuple[TrayPlan, ...]:
    """The trays of a lab, `tray-0` and on. `second_octet` keeps the addresses of two labs apart."""
    return tuple(
        TrayPlan(
            name=f"tray-{number}",
            number=number,
            gpu=gpu,
            cards=tuple(Card(uuid=card_uuid(f"{lab}/tray-{number}", place), place=place) for place in range(gpus)),
            cpu=cpu,
            memory=memory,
            address=f"127.{second_octet}.{number}.1",
            domain=str(uuid.uuid5(_SPACE, f"{lab}/domain-{number // trays_per_domain}")),
        )
        for number in range(trays)
    )


def card_uuid(tray: str, place: int) -> str:
    """The UUID of a card, as `nvidia-smi -L` shows it."""
    return f"GPU-{uuid.uuid5(_SPACE, f'{tray}/{place}')}"


def split_domain(tray: TrayPlan) -> str:
    """The domain in which a tray finds itself alone, once its NVLink cables are cut."""
    return str(uuid.uuid5(_SPACE, f"{tray.domain}/{tray.name}"))


def pod_address(tray: TrayPlan, place: int) -> str:
    """The address of the pod in a place of a tray, from 0."""
    return f"{tray.address.rpartition('.')[0]}.{place + 2}"


def labels_of(tray: TrayPlan, domain: str) -> dict[str, str]:
    """What kubelet, GPU feature discovery and topograph would write on the node, while it is in this NVLink domain."""
    found = {
        "kubernetes.io/hostname": tray.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": tray.model.arch,
        "node.kubernetes.io/instance-type": f"lab-{tray.gpu.lower()}-{len(tray.cards)}",
        "topology.kubernetes.io/region": "lab",
        "topology.kubernetes.io/zone": "lab-a",
        "levers9.dev/lab": "true",
        "fabric.topograph.run/tier-0": f"leaf-{tray.number // TRAYS_PER_LEAF}",
        "fabric.topograph.run/tier-1": "spine-0",
    }
    if not tray.cards:
        return found
    found |= _feature_labels(tray)
    if tray.model.fabric:
        found |= {"nvidia.com/gpu.clique": f"{domain}.0", "accelerator.topograph.run/domain": domain}
    return found


def _feature_labels(tray: TrayPlan) -> dict[str, str]:
    model = tray.model
    major, minor = model.compute
    driver, cuda = ".".join(_DRIVER), ".".join(_CUDA)
    plain = {
        "gpu.present": "true",
        "gpu.count": str(len(tray.cards)),
        "gpu.product": model.product,
        "gpu.family": model.family,
        "gpu.memory": str(model.memory_mib),
        "gpu.machine": f"Lab-{tray.gpu}-tray",
        "gpu.mode": "compute",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.deploy.device-plugin": "true",
        "gpu.deploy.driver": "true",
        "gpu.deploy.gpu-feature-discovery": "true",
        "cuda.driver.major": _DRIVER[0],
        "cuda.driver.minor": _DRIVER[1],
        "cuda.driver.rev": _DRIVER[2],
        "cuda.driver-version.full": driver,
        "cuda.driver-version.major": _DRIVER[0],
        "cuda.driver-version.minor": _DRIVER[1],
        "cuda.driver-version.revision": _DRIVER[2],
        "cuda.runtime.major": _CUDA[0],
        "cuda.runtime.minor": _CUDA[1],
        "cuda.runtime-version.full": cuda,
        "cuda.runtime-version.major": _CUDA[0],
        "cuda.runtime-version.minor": _CUDA[1],
        "mig.capable": str(model.mig).lower(),
        "mps.capable": "false",
        "vgpu.present": "false",
        "gfd.timestamp": "0",
    }
    if model.mig:
        plain["mig.strategy"] = "single"
    return {f"nvidia.com/{key}": value for key, value in plain.items()}


def smi_list(cards: tuple[Card, ...], model: CardModel) -> str:
    """What `nvidia-smi -L` prints inside a pod that has these cards: numbered from 0, whatever their places are."""
    name = model.product.replace("-", " ")
    return "".join(f"GPU {number}: {name} (UUID: {card.uuid})\n" for number, card in enumerate(cards))
