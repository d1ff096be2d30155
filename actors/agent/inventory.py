"""The nodes of a cluster, and what of them is told: only those that the selector names."""

from __future__ import annotations

from typing import Final

from ...errors import Refused
from ...kube.objects import Node, Pod
from ...model.clusters import ClusterSpec, Flavour
from ...model.selectors import Term, parse
from ...wire.cluster import NodeReport
from .accounts import Accounts
from .jobs import Ground
from .nodes import NodeFacts, facts_of, report_of
from .taints import to_tolerate

_UNNAMED: Final = ClusterSpec(name="", gpu_type="")


class Inventory:
    """Nodes by name, and a report of each that is made anew only when the node, or what others take of it, changed.

    `changed` is set when what is told differs from what was told before; whoever tells it clears it.
    """

    def __init__(self, *, ignore_below: int | None = None) -> None:
        self._facts: dict[str, NodeFacts] = {}
        self._unseen: dict[str, None] = {}
        self._by_uid: dict[str, str] = {}
        self._accounts = Accounts(ignore_below=ignore_below)
        self._spec = _UNNAMED
        self._selector: tuple[Term, ...] | None = None  # None: it cannot be read, and names no node
        self._told: dict[str, NodeReport] = {}  # of the nodes that the selector names
        self._stale: dict[str, None] = {}  # names of nodes whose report is to be made anew
        self.problem = ""
        self.changed = False

    # What is told to us

    def configure(self, spec: ClusterSpec) -> None:
        """Which nodes are lent, and what their cards are called."""
        if spec == self._spec:
            return
        self._spec, self.problem = spec, ""
        try:
            self._selector = parse(spec.selector)
        except Refused as error:
            self._selector, self.problem = None, str(error)
        self._stale.update(dict.fromkeys(self._facts))
        self.changed = True

    def put(self, node: Node) -> None:
        """A node as it is now."""
        facts = facts_of(node)
        self._unseen.pop(facts.name, None)
        earlier = self._facts.get(facts.name)
        if earlier == facts:
            return
        if earlier is not None:
            self._by_uid.pop(earlier.uid, None)
        self._facts[facts.name] = facts
        self._by_uid[facts.uid] = facts.name
        self._stale[facts.name] = None

    def remove(self, name: str, uid: str) -> None:
        """A node is gone; one of the same name that came since stays."""
        facts = self._facts.get(name)
        if facts is None or (uid and facts.uid != uid):
            return
        del self._facts[name]
        self._unseen.pop(name, None)
        self._by_uid.pop(facts.uid, None)
        self._stale[name] = None

    def nodes_began(self) -> None:
        """All nodes are about to be told anew."""
        self._unseen = dict.fromkeys(self._facts)

    def nodes_ended(self) -> None:
        """They were: those that were not told are gone."""
        for name in tuple(self._unseen):
            self.remove(name, "")

    def pod(self, pod: Pod, *, gone: bool) -> None:
        """A pod that is not ours."""
        touched = self._accounts.remove(pod.metadata.uid) if gone else self._accounts.put(pod)
        self._stale.update(dict.fromkeys(touched))

    def pods_began(self) -> None:
        """All pods are about to be told anew."""
        self._accounts.list_began()

    def pods_ended(self) -> None:
        """They were."""
        self._stale.update(dict.fromkeys(self._accounts.list_ended()))

    # What is asked of us

    def refresh(self) -> None:
        """Make anew the reports that may have changed, and set `changed` where one did."""
        for name in self._stale:
            report = self._report(name)
            if report == self._told.get(name):
                continue
            self.changed = True
            if report is None:
                del self._told[name]
            else:
                self._told[name] = report
        self._stale.clear()

    def _report(self, name: str) -> NodeReport | None:
        facts = self._facts.get(name)
        if facts is None or self._selector is None or not all(term.matches(facts.labels) for term in self._selector):
            return None
        return report_of(
            facts, self._accounts.of(name), gpu_type=self._spec.gpu_type, selected=bool(self._spec.selector.strip())
        )

    def reports(self) -> tuple[NodeReport, ...]:
        """What is told of each node that the selector names, by name."""
        self.refresh()
        return tuple(self._told[name] for name in sorted(self._told))

    @property
    def matched(self) -> int:
        """How many nodes the selector names."""
        self.refresh()
        return len(self._told)

    def named(self, name: str, uid: str) -> str:
        """Why no worker may stand on this node; "" where the selector names it, and it is the very one, and ready."""
        self.refresh()
        told = self._told.get(name)
        if told is None:
            known = "is not among those that the selector names" if name in self._facts else "is not there"
            return f"The node {name} {known}."
        if told.uid != uid:
            return f"The node {name} is another one than was meant: its UID is {told.uid}."
        return "" if self._facts[name].ready else f"The node {name} is not ready: nobody knows what runs there."

    def ground(self, name: str) -> Ground:
        """What the Job of a worker on this node must know of it."""
        facts = self._facts[name]
        selected = bool(self._spec.selector.strip())
        return Ground(taints=to_tolerate(facts.taints, selected=selected), kind=facts.cards.kind)

    def uid_of(self, name: str) -> str:
        """The UID of the node of this name, "" when it is not there."""
        facts = self._facts.get(name)
        return facts.uid if facts is not None else ""

    def there(self, uid: str) -> bool:
        """Whether this very node is there."""
        return uid in self._by_uid

    def ready(self, uid: str) -> bool:
        """Whether this very node is there and its kubelet is heard."""
        return uid in self._by_uid and self._facts[self._by_uid[uid]].ready

    @property
    def flavour(self) -> Flavour:
        """Whose Kubernetes it is, by the first node that tells."""
        if self._spec.flavour:
            return self._spec.flavour
        told = (self._facts[name].flavour for name in sorted(self._told))
        return next((flavour for flavour in told if flavour), Flavour.PLAIN)
