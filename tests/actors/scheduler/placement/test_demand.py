"""What was asked for, and which of it is typical."""

from levers9_test_placement import shape

from levers9.actors.scheduler.placement.demand import SHAPES_MAX, Demand, Typical
from levers9.model.resources import Shape


def seen(*counts: int) -> Demand:
    """Shapes of 1, 2, 3 … CPUs, each asked for so many times."""
    demand = Demand()
    for cpu, count in enumerate(counts, start=1):
        for _ in range(count):
            demand.saw(shape(cpu=cpu))
    return demand


def test_typical_are_the_commonest_that_together_make_up_95_percent() -> None:
    assert [typical.count for typical in seen(5, 90, 5).typical()] == [90, 5]
    assert [typical.count for typical in seen(4, 95, 1).typical()] == [95]
    assert [typical.count for typical in seen(948, 49, 3).typical()] == [948, 49]
    assert seen().typical() == ()


def test_memory_does_not_tell_shapes_apart() -> None:
    demand = Demand()
    for memory in (1, 2, 3):
        demand.saw(shape(cpu=1, memory=memory))
    assert demand.typical() == (Typical(Shape(cpu_milli=1000, memory_mib=0), 3),)


def test_of_equally_common_shapes_the_smaller_go_first_however_they_came() -> None:
    forth, back = Demand(), Demand()
    for cpu in range(1, 21):
        forth.saw(shape(cpu=cpu))
        back.saw(shape(cpu=21 - cpu))
    assert forth.typical() == back.typical()
    assert [typical.shape.cpu_milli for typical in forth.typical()] == [1000 * cpu for cpu in range(1, 20)]


def test_shapes_beyond_number_do_not_fill_the_memory_and_common_ones_are_not_lost() -> None:
    demand = Demand()
    for cpu in range(3 * SHAPES_MAX):
        demand.saw(Shape(cpu_milli=cpu + 10_000, memory_mib=1))
        demand.saw(shape(cpu=1))
    assert len(demand.counted()) <= SHAPES_MAX
    assert demand.typical()[0].shape.cpu_milli == 1000
    assert demand.typical()[0].count == 3 * SHAPES_MAX
