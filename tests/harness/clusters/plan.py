"""What is to happen in a world of clusters: nodes, work, and what goes wrong when. All is drawn beforehand."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from levers9_world.journal import seed_of

from levers9.model.ids import Chance

T = TypeVar("T")

HORIZON_S: Final = 90.0  # work is submitted and faults happen within
WORKSPACES: Final = ("north", "south")
CARD_TYPES: Final = ("A10", "H100", "GB200")
CARDS: Final = (1, 1, 2, 4, 4, 8)
MOST_FAULTS: Final = 10
GANG_MOST: Final = 4


class FaultKind(enum.StrEnum):
    """What can go wrong, or is done by people."""

    CUT = "cut a stream"
    SILENCE = "silence a stream for 20 s"
    REPORT_LATE = "hold back what an agent says, and deliver it out of order"
    REPORT_TWICE = "deliver what an agent said a while ago once more, the newest first"
    AGENT_DEAF = "isolate an agent until its reports are stale"
    KILL_AGENT = "kill an agent"
    TWO_AGENTS = "start a second agent beside the first"
    KILL_BRAIN = "kill the brain"
    KILL_GATEWAY = "kill the gateway"
    FAIL_COMMIT = "fail a commit"
    LOSE_ANSWER = "commit, and lose the answer"
    STORE_AWAY = "take the store away for 3 s"
    API_AWAY = "take an API server away for 30 s"
    CUT_WATCH = "cut the watches of an API server"
    COMPACT = "compact the history of an API server"
    LAG = "have the watches of an API server lag for 40 s"
    LOSE_REPLY = "have an API server carry something out, and lose its answer"
    FORBID = "refuse an agent to create and delete Jobs for 40 s"
    LOSE_NODE = "lose a node"
    HIDE_NODE = "have a node answer nobody for 100 s"
    CORDON = "cordon a node for 40 s"
    TAINT = "taint a node for 40 s"
    TENANTS = "have others take cards of a node for 60 s"
    KILL_WORKER = "kill the process of a worker"
    EVICT = "evict the pod of a worker"
    DELETE_JOB = "delete the Job of a worker"
    ISOLATE_WORKER = "isolate a worker for 60 s"
    LOSE_WORKER = "isolate a worker for longer than its lease"
    SHARE = "share a cluster"
    UNSHARE = "take a shared cluster back"
    LEAVE = "leave with a cluster, and join again after 20 s"
    JOIN_AGAIN = "join a cluster that is attached: its agent gets a new token"
    CANCEL = "cancel calls"


_OFTEN: Final = (FaultKind.REPORT_LATE, FaultKind.REPORT_TWICE, FaultKind.KILL_BRAIN, FaultKind.KILL_AGENT)
_DRAWN: Final = (*FaultKind, *_OFTEN, *_OFTEN)


class Fate(enum.StrEnum):
    """What becomes of the pod of a worker's Job."""

    FINE = "fine"
    NO_POD = "never gets a pod"
    UNSCHEDULABLE = "its pod fits nowhere"
    PULL_FAILS = "its image cannot be pulled"
    LATE = "starts late"
    DIES_UNSTARTED = "ends before it has started"
    DIES_STARTING = "dies before it has dialled"
    DIES_REPORTING = "dies before it has reported"
    DIES_RUNNING = "dies while it runs"
    DIES_LEAVING = "dies while it winds down"


@dataclass(frozen=True)
class Fault:
    """One of them at its time. `luck` chooses whom it meets."""

    at_s: float
    kind: FaultKind
    luck: float = 0.0


@dataclass(frozen=True)
class NodePlan:
    """A node of a cluster. `tenants` are the cards that others have from the beginning and keep."""

    name: str
    cards: int
    rack: str
    tenants: int = 0
    cordoned: bool = False
    tainted: bool = False
    sliced: bool = False  # its cards are time slices: no whole ones

    @property
    def lends(self) -> int:
        """The cards that a worker can ever have there."""
        return 0 if self.cordoned or self.tainted or self.sliced else self.cards - self.tenants


@dataclass(frozen=True)
class ClusterPlan:
    """A cluster that a workspace attaches. Over an `unordered` network frames overtake each other."""

    name: str
    owner: str
    gpu_type: str
    nodes: tuple[NodePlan, ...]
    shared: bool = False
    unordered: bool = False


@dataclass(frozen=True)
class WorkPlan:
    """Calls of one function of a workspace, submitted at once: cards and nodes of each, and how long it takes."""

    name: str
    workspace: str
    calls: int
    at_s: float
    least_s: float
    most_s: float
    cards: int = 0
    gpu_type: str = ""
    nodes: int = 1
    in_rack: bool = False


@dataclass(frozen=True)
class ClusterWorldPlan:
    """A whole world. `bad_pods` is the share of pods before the horizon whose fate is not fine."""

    clusters: tuple[ClusterPlan, ...]
    work: tuple[WorkPlan, ...]
    faults: tuple[Fault, ...] = ()
    bad_pods: float = 0.0
    guard_pending: int = 20
    guard_per_minute: int = 30


def draw_plan(seed: int) -> ClusterWorldPlan:
    """A plan by seed: one to three clusters, two to four kinds of work, up to ten faults."""
    chance = Chance(seed_of(seed, "cluster plan"))
    clusters = tuple(_cluster(chance, number) for number in range(pick(chance, (1, 2, 2, 3))))
    work = tuple(_work(chance, number, clusters) for number in range(pick(chance, (2, 3, 4))))
    faults = [
        Fault(chance.uniform(0.0, HORIZON_S), pick(chance, _DRAWN), chance.uniform(0, 1))
        for _ in range(int(chance.uniform(0, MOST_FAULTS + 1 - 1e-9)))
    ]
    return ClusterWorldPlan(
        clusters=clusters,
        work=work,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        bad_pods=pick(chance, (0.0, 0.1, 0.3)),
        guard_pending=pick(chance, (20, 20, 1)),
        guard_per_minute=pick(chance, (30, 30, 2)),
    )


def _cluster(chance: Chance, number: int) -> ClusterPlan:
    """The third is one that a platform's admin shares. The first two may have one name, each in its workspace."""
    gpu_type = pick(chance, CARD_TYPES)
    nodes = [_node(chance, f"node-{one}") for one in range(int(chance.uniform(2, 7)))]
    if not any(node.lends for node in nodes):
        nodes[0] = NodePlan(nodes[0].name, 2, nodes[0].rack)
    return ClusterPlan(
        name="lab" if number < 2 and chance.uniform(0, 1) < 0.5 else f"lab-{number}",
        owner=WORKSPACES[number % 2],
        gpu_type=gpu_type,
        nodes=tuple(nodes),
        shared=number == 2 or chance.uniform(0, 1) < 0.2,
        unordered=chance.uniform(0, 1) < 0.3,
    )


def _node(chance: Chance, name: str) -> NodePlan:
    cards = pick(chance, CARDS)
    luck = chance.uniform(0, 1)
    return NodePlan(
        name=name,
        cards=cards,
        rack=pick(chance, ("rack-1", "rack-2")),
        tenants=int(chance.uniform(0, cards + 1)) if chance.uniform(0, 1) < 0.2 else 0,
        cordoned=luck < 0.08,
        tainted=0.08 <= luck < 0.14,
        sliced=luck > 0.92,
    )


def _work(chance: Chance, number: int, clusters: tuple[ClusterPlan, ...]) -> WorkPlan:
    """Work that some cluster can do one day: nobody waits for what never comes."""
    cluster = pick(chance, clusters)
    workspace = pick(chance, WORKSPACES) if cluster.shared else cluster.owner
    most = max(node.lends for node in cluster.nodes)
    cards = min(most, pick(chance, (0, 1, 1, 2, 4)))
    able = sum(node.lends >= max(1, cards) for node in cluster.nodes)
    nodes = min(able, GANG_MOST, pick(chance, (1, 1, 2, 3, 4)))
    least_s, most_s, calls = pick(chance, ((0.05, 1.0, 16), (2.0, 15.0, 8), (60.0, 150.0, 3)))
    return WorkPlan(
        name=f"work-{number}",
        workspace=workspace,
        calls=int(chance.uniform(1, calls + 1)),
        at_s=chance.uniform(0.0, HORIZON_S) if chance.uniform(0, 1) < 0.5 else 0.0,
        least_s=least_s,
        most_s=most_s,
        cards=cards,
        gpu_type=cluster.gpu_type if cards else "",
        nodes=nodes,
        in_rack=nodes > 1 and chance.uniform(0, 1) < 0.5 and _fits_in_a_rack(cluster, cards, nodes),
    )


def _fits_in_a_rack(cluster: ClusterPlan, cards: int, nodes: int) -> bool:
    racks = [node.rack for node in cluster.nodes if node.lends >= max(1, cards)]
    return any(racks.count(rack) >= nodes for rack in racks)


def pick(chance: Chance, among: Sequence[T]) -> T:
    """One of them."""
    return chosen(among, chance.uniform(0, 1))


def chosen(among: Sequence[T], luck: float) -> T:
    """The one that this luck, from 0 to 1, falls on."""
    return among[min(int(luck * len(among)), len(among) - 1)]


def with_faults(plan: ClusterWorldPlan, kept: tuple[int, ...]) -> ClusterWorldPlan:
    """The same plan with only those of its faults that have these numbers."""
    return replace(plan, faults=tuple(fault for number, fault in enumerate(plan.faults) if number in kept))
