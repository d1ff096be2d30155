"""What pools are called: which one a name means, and what is told of those of others."""

from __future__ import annotations

import pytest

from levers9.errors import Refused
from levers9.model.clusters import pool_of
from levers9.model.feasibility import PoolOffer, PoolTerms, check_feasible, pool_meant, unknown_offer
from levers9.model.nodes import NodeOffer, Traits
from levers9.model.resources import Capacity, Shape

SIZE = Capacity(cpu_milli=4000, memory_mib=4096, gpu_count=2, gpu_type="T4")
SECRET = Capacity(cpu_milli=64_000, memory_mib=65_536, gpu_count=8, gpu_type="H100")
PLAIN = PoolOffer(pool="default", largest=SIZE, offers=(NodeOffer(capacity=SIZE, traits=Traits()),))


def cluster(name: str, owner: str, *, shared: bool = False, size: Capacity = SIZE) -> PoolOffer:
    offer = NodeOffer(capacity=size, traits=Traits(node=f"{owner}-node", labels=(("host", f"{owner}-node"),)))
    pool = pool_of(owner, name)
    serves = "" if shared else owner
    return PoolOffer(pool=pool, largest=size, offers=(offer,), serves=serves, owner=owner, known_as=name)


MINE, THEIRS, SHARED = cluster("lab", "a"), cluster("lab", "b", size=SECRET), cluster("lab", "c", shared=True)


def refusal(name: str, *offers: PoolOffer, workspace: str = "a") -> str:
    with pytest.raises(Refused) as caught:
        pool_meant(name, offers, workspace)
    return f"{caught.value.what} {caught.value.fix}"


def test_ones_own_cluster_of_that_name_is_meant_first() -> None:
    exact = PoolOffer(pool="lab", largest=SIZE)
    assert pool_meant("lab", (SHARED, exact, THEIRS, MINE), "a") == MINE.pool
    assert pool_meant("lab", (SHARED, exact, THEIRS), "a") == "lab"
    assert pool_meant("lab", (SHARED, THEIRS), "a") == SHARED.pool


def test_a_pool_is_meant_by_its_whole_name_and_nothing_is_by_none() -> None:
    assert pool_meant(MINE.pool, (MINE, SHARED), "a") == MINE.pool
    assert pool_meant("", (MINE, SHARED), "a") == ""
    assert pool_meant("anything", (), "a") == "anything"


def test_of_several_shared_clusters_of_one_name_none_is_guessed() -> None:
    other = cluster("lab", "d", shared=True)
    told = refusal("lab", SHARED, other)
    assert told.startswith("Several shared clusters are called 'lab'.")
    assert all(pool.pool in told for pool in (SHARED, other))


def test_the_names_that_one_may_use_are_short_where_they_are_ones_own_and_never_private_ones_of_others() -> None:
    told = refusal("nowhere", PLAIN, MINE, THEIRS, SHARED)
    assert told == f"There is no pool 'nowhere'. Pools you may use: default, lab, {SHARED.pool}."
    assert refusal("nowhere", PLAIN, THEIRS, SHARED) == "There is no pool 'nowhere'. Pools you may use: default, lab."


def test_a_private_cluster_of_others_is_not_there() -> None:
    assert "There is no pool 'lab'." in refusal("lab", PLAIN, THEIRS)
    assert "There is no pool" in refusal(THEIRS.pool, PLAIN, THEIRS)


def test_a_cluster_that_leaves_and_joins_again_is_the_same_pool() -> None:
    assert pool_meant("lab", (cluster("lab", "a"),), "a") == pool_meant("lab", (MINE,), "a")


@pytest.mark.parametrize(
    "shape",
    [
        Shape(cpu_milli=1, memory_mib=1, pool="nowhere"),
        Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("H100",)),
        Shape(cpu_milli=1, memory_mib=1, gpu_count=8),
        Shape(cpu_milli=1, memory_mib=1, labels=(("host", "b-node"),)),
        Shape(cpu_milli=64_000, memory_mib=1),
        Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_milli=500),
    ],
)
@pytest.mark.parametrize("offers", [(PLAIN, THEIRS, SHARED), (THEIRS, SHARED), (THEIRS,)])
def test_no_refusal_names_a_private_pool_of_others_or_its_cards_or_sizes(
    shape: Shape, offers: tuple[PoolOffer, ...]
) -> None:
    with pytest.raises(Refused) as caught:
        check_feasible(shape, offers, "a")
    told = f"{caught.value.what} {caught.value.why} {caught.value.fix}".replace("of type H100", "")
    asked = {value for _, value in shape.labels}
    secrets = {THEIRS.pool, "H100", "64 CPUs", "8 cards", "b-node", "c-node", "65536"} - asked
    assert not [secret for secret in secrets if secret in told]


def test_nodes_of_a_shared_cluster_are_not_named_by_their_labels_but_to_its_owner() -> None:
    shape = Shape(cpu_milli=1, memory_mib=1, labels=(("host", "nowhere"),))
    with pytest.raises(Refused) as caught:
        check_feasible(shape, (SHARED,), "a")
    assert caught.value.why == "Nodes of shared clusters have other values of it."
    with pytest.raises(Refused) as caught:
        check_feasible(shape, (SHARED,), "c")
    assert caught.value.why == "Its values are: c-node."


class TestClusterThatNeverReported:
    UNSEEN = unknown_offer("lab-1", PoolTerms(serves="a", owner="a", known_as="lab", gpu_type="H100"))

    @pytest.mark.parametrize(
        ("shape", "nodes"),
        [
            (Shape(cpu_milli=1, memory_mib=1, gpu_count=64, gpu_types=("H100",)), 1),
            (Shape(cpu_milli=1_000_000, memory_mib=1, gpu_count=1), 1),
            (Shape(cpu_milli=1_000_000, memory_mib=1), 1),
            (Shape(cpu_milli=1, memory_mib=1, gpu_count=1, labels=(("any", "label"),)), 1),
            (Shape(cpu_milli=1, memory_mib=1, gpu_count=8), 100),
        ],
    )
    def test_what_may_fit_there_is_not_refused(self, shape: Shape, nodes: int) -> None:
        check_feasible(shape, (self.UNSEEN,), "a", nodes)

    def test_another_type_of_cards_is_refused_with_the_one_that_it_is_said_to_have(self) -> None:
        shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("T4",))
        with pytest.raises(Refused) as caught:
            check_feasible(shape, (self.UNSEEN,), "a")
        assert caught.value.why == "GPU types you may use: H100."

    def test_a_share_of_a_card_is_refused(self) -> None:
        shape = Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_milli=500)
        with pytest.raises(Refused, match="No pool shares its cards"):
            check_feasible(shape, (self.UNSEEN,), "a")

    def test_beside_nodes_that_were_seen_without_such_cards_only_cards_are_unknown(self) -> None:
        seen = PoolOffer(
            pool="lab-1", largest=Capacity(cpu_milli=4000, memory_mib=4096), serves="a", owner="a", known_as="lab"
        )
        check_feasible(Shape(cpu_milli=64_000, memory_mib=1, gpu_count=8), (seen, self.UNSEEN), "a")
        with pytest.raises(Refused, match="No worker was ever large enough"):
            check_feasible(Shape(cpu_milli=64_000, memory_mib=1), (seen, self.UNSEEN), "a")


@pytest.mark.parametrize(
    "shape",
    [
        Shape(cpu_milli=65_000, memory_mib=1, gpu_count=1),
        Shape(cpu_milli=1, memory_mib=65_537, gpu_count=1),
        Shape(cpu_milli=1, memory_mib=1, gpu_count=9),
    ],
)
def test_more_than_any_worker_of_a_cluster_could_have_is_refused_with_what_the_largest_had(shape: Shape) -> None:
    with pytest.raises(Refused, match="No worker was ever large enough") as caught:
        check_feasible(shape, (THEIRS,), "b")
    assert caught.value.why == "The largest had 64 CPUs, 65536 MiB and 8 cards."
