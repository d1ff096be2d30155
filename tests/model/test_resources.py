"""Quantities in, integers out; and what fits where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from levers9.errors import FORBIDDEN, Refused
from levers9.model.feasibility import PoolOffer, check_feasible
from levers9.model.resources import Capacity, Shape, cpu_milli, memory_mib

sizes = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("given_", "mib"),
    [(512, 512), ("512", 512), ("512Mi", 512), ("1Gi", 1024), ("1.5G", 1431), ("2TiB", 2 * 1024**2), (" 1 M ", 1)],
)
def test_memory_is_read_as_mebibytes(given_: int | str, mib: int) -> None:
    assert memory_mib(given_) == mib


@pytest.mark.parametrize("wrong", [0, -1, True, "", "many", "1Pi", "0.1Mi", "-5Mi"])
def test_memory_that_is_no_quantity_is_refused(wrong: int | str) -> None:
    with pytest.raises(Refused, match="is not a quantity"):
        memory_mib(wrong)


@pytest.mark.parametrize(("given_", "milli"), [(2, 2000), (0.125, 125), ("500m", 500), ("0.5", 500)])
def test_cpus_are_read_as_thousandths(given_: float | str, milli: int) -> None:
    assert cpu_milli(given_) == milli


@pytest.mark.parametrize("wrong", [0, -1, "", "m", "many", float("nan"), float("inf"), 0.0001])
def test_cpus_that_are_no_quantity_are_refused(wrong: float | str) -> None:
    with pytest.raises(Refused, match="is not a quantity"):
        cpu_milli(wrong)


@given(cpu=sizes, memory=sizes, cards=st.integers(0, 8), want=st.tuples(sizes, sizes, st.integers(0, 8)))
def test_what_is_taken_and_given_back_is_as_before(
    cpu: int, memory: int, cards: int, want: tuple[int, int, int]
) -> None:
    size = Capacity(cpu_milli=cpu, memory_mib=memory, gpu_count=cards, gpu_type="T4")
    shape = Shape(cpu_milli=want[0], memory_mib=want[1], gpu_count=want[2])
    left = size.less(shape)
    assert left.plus(shape) == size
    assert size.fits(shape) == (left.cpu_milli >= 0 and left.memory_mib >= 0 and left.gpu_count >= 0)


def test_a_type_of_card_is_asked_for_by_name_or_not_at_all() -> None:
    size = Capacity(cpu_milli=10, memory_mib=10, gpu_count=2, gpu_type="T4")
    for types, fits in (((), True), (("T4",), True), (("A100", "T4"), True), (("A100",), False)):
        assert size.fits(Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=types)) is fits
    assert size.fits(Shape(cpu_milli=1, memory_mib=1, gpu_types=("A100",)))


def test_a_worker_that_lost_cards_takes_those_who_want_none() -> None:
    left = Capacity(cpu_milli=10, memory_mib=10, gpu_count=-2, gpu_type="T4")
    assert left.fits(Shape(cpu_milli=1, memory_mib=1))
    assert not left.fits(Shape(cpu_milli=1, memory_mib=1, gpu_count=1))


OFFERS = (
    PoolOffer(pool="plain", largest=Capacity(cpu_milli=4000, memory_mib=8192)),
    PoolOffer(pool="cards", largest=Capacity(cpu_milli=2000, memory_mib=1024, gpu_count=2, gpu_type="T4")),
)


def refusal(shape: Shape, offers: tuple[PoolOffer, ...] = OFFERS) -> Refused:
    with pytest.raises(Refused) as caught:
        check_feasible(shape, offers)
    return caught.value


def test_what_fits_some_pool_passes_and_so_does_everything_while_no_pool_is_known() -> None:
    check_feasible(Shape(cpu_milli=4000, memory_mib=8192), OFFERS)
    check_feasible(Shape(cpu_milli=2000, memory_mib=1024, gpu_count=2), OFFERS)
    check_feasible(Shape(cpu_milli=10**9, memory_mib=1), ())


def test_what_fits_no_pool_is_refused_with_the_numbers() -> None:
    error = refusal(Shape(cpu_milli=5000, memory_mib=1))
    assert (error.code, error.why) == ("never_fits", "The largest had 4 CPUs, 8192 MiB and 2 cards.")
    assert refusal(Shape(cpu_milli=1, memory_mib=1, gpu_count=3, gpu_types=("T4",))).code == "never_fits"


def test_a_card_that_nobody_has_is_refused_with_those_that_somebody_has() -> None:
    error = refusal(Shape(cpu_milli=1, memory_mib=1, gpu_count=1, gpu_types=("H100", "A100")))
    assert (error.code, error.what) == ("unknown_gpu", "No pool has GPUs of type H100 or A100.")
    assert error.why == "GPU types you may use: T4."
    error = refusal(Shape(cpu_milli=1, memory_mib=1, gpu_count=1), OFFERS[:1])
    assert (error.what, error.why) == ("No pool has GPUs.", "There are no GPUs that you may use.")


def test_a_pool_that_is_not_there_is_refused_with_those_that_are() -> None:
    error = refusal(Shape(cpu_milli=1, memory_mib=1, pool="nowhere"))
    assert (error.code, error.fix) == ("never_fits", "Pools you may use: cards, plain.")
    assert refusal(Shape(cpu_milli=3000, memory_mib=1, pool="cards")).code == "never_fits"


@pytest.mark.parametrize("wrong", [(0, 1, 0), (1, 0, 0), (-1, 1, 0), (1, 1, -1)])
def test_a_shape_that_takes_nothing_is_refused_even_while_no_pool_is_known(wrong: tuple[int, int, int]) -> None:
    error = refusal(Shape(cpu_milli=wrong[0], memory_mib=wrong[1], gpu_count=wrong[2]), ())
    assert error.code == "invalid"


def test_a_workspace_that_no_pool_serves_is_told_why() -> None:
    offers = tuple(structs.replace(offer, serves="mine") for offer in OFFERS)
    shape = Shape(cpu_milli=100, memory_mib=100)
    check_feasible(shape, offers, "mine")
    with pytest.raises(Refused, match="No pool serves this workspace") as refusal:
        check_feasible(shape, offers, "yours")
    assert refusal.value.code == FORBIDDEN
    assert "isolation" in refusal.value.why
