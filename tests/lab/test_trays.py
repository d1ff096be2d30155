"""Trays, their cards and their labels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levers9.lab.trays import CARDS, TrayPlan, labels_of, plan_trays, pod_address, smi_list, split_domain
from levers9.lab.traystate import TrayState


def trays_of(trays: int = 2, gpus: int = 4, gpu: str = "GB200", trays_per_domain: int = 18) -> tuple[TrayPlan, ...]:
    return plan_trays(
        "lab", 77, trays=trays, gpus=gpus, gpu=gpu, cpu=64, memory="512Gi", trays_per_domain=trays_per_domain
    )


def test_cards_have_the_same_uuids_after_each_start_and_no_two_the_same() -> None:
    uuids = [card.uuid for tray in trays_of(trays=3) for card in tray.cards]
    assert len(set(uuids)) == 12
    assert uuids == [card.uuid for tray in trays_of(trays=3) for card in tray.cards]
    assert all(each.startswith("GPU-") for each in uuids)


def test_trays_beyond_a_domain_are_in_the_next() -> None:
    domains = [tray.domain for tray in trays_of(trays=4, trays_per_domain=2)]
    assert domains[0] == domains[1] != domains[2] == domains[3]


def test_a_split_tray_has_a_domain_of_its_own_in_both_labels() -> None:
    tray = trays_of()[1]
    state = TrayState(tray)
    state.faults.split = True
    own = split_domain(tray)
    assert own != tray.domain
    assert state.labels["nvidia.com/gpu.clique"] == f"{own}.0"
    assert state.labels["accelerator.topograph.run/domain"] == own


def test_only_cards_with_a_fabric_have_cliques() -> None:
    labels = labels_of(trays_of(gpu="L4")[0], "domain")
    assert "nvidia.com/gpu.clique" not in labels
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-L4"


def test_a_tray_without_cards_has_no_labels_of_cards() -> None:
    labels = labels_of(trays_of(gpus=0)[0], "domain")
    assert not [key for key in labels if key.startswith("nvidia.com/")]


@pytest.mark.parametrize("gpu", CARDS)
def test_every_card_has_the_labels_of_gpu_feature_discovery(gpu: str) -> None:
    labels = labels_of(trays_of(gpu=gpu)[0], "domain")
    assert labels["nvidia.com/gpu.memory"] == str(CARDS[gpu].memory_mib)
    assert len([key for key in labels if key.startswith("nvidia.com/")]) >= 25


def test_inside_a_pod_cards_are_numbered_from_0() -> None:
    tray = trays_of()[0]
    listing = smi_list(tray.cards[2:], tray.model)
    assert listing.splitlines()[0] == f"GPU 0: NVIDIA GB200 (UUID: {tray.cards[2].uuid})"
    assert listing.splitlines()[1] == f"GPU 1: NVIDIA GB200 (UUID: {tray.cards[3].uuid})"


def test_pods_of_two_trays_never_have_the_same_address() -> None:
    addresses = [pod_address(tray, place) for tray in trays_of(trays=3) for place in range(5)]
    assert len(set(addresses)) == 15
    assert not set(addresses) & {tray.address for tray in trays_of(trays=3)}


@settings(settings.get_profile("house"), max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=30))
def test_no_card_belongs_to_two_pods(steps: list[tuple[bool, int]]) -> None:
    state = TrayState(trays_of()[0])
    held: dict[str, int] = {}
    for number, (takes, count) in enumerate(steps):
        if takes:
            cards = state.allocate(f"pod-{number}", count)
            free = 4 - sum(held.values())
            assert (cards is None) == (count > free)
            if cards is not None:
                held[f"pod-{number}"] = len(cards)
        elif held:
            state.release(gone := next(iter(held)))
            del held[gone]
        taken = [card.uuid for pod in held for card in state.cards_of(pod)]
        assert len(taken) == len(set(taken)) == sum(held.values())


def test_a_lost_card_goes_to_nobody_and_its_pod_keeps_it() -> None:
    state = TrayState(trays_of()[0])
    assert state.allocate("one", 4) is not None
    state.faults.lost_cards = 1
    assert len(state.cards_of("one")) == 4
    state.release("one")
    assert state.allocate("two", 4) is None
    assert state.allocate("two", 3) is not None


def test_an_address_is_free_again_only_when_its_pod_is_gone() -> None:
    state = TrayState(trays_of()[0])
    assert (state.place("one"), state.place("two")) == (0, 1)
    state.release("one")
    assert state.place("three") == 2
    state.release("one", place=True)
    assert state.place("four") == 0


def test_what_is_wrong_with_a_tray_is_told_in_words() -> None:
    state = TrayState(trays_of()[0])
    assert state.words == ()
    state.faults.powered = False
    state.faults.slow_s = 2.0
    assert state.words == ("no power", "2 s slow")
    assert not state.reachable
