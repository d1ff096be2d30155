"""Identities and chance: reproducible from a seed, the system's without one."""

from levers9.model.ids import Chance


def test_the_same_seed_gives_the_same_and_another_gives_others() -> None:
    one, same, other = Chance(1), Chance(1), Chance(2)
    assert one.id("task") == same.id("task") != other.id("task")
    assert one.uniform(0.0, 1.0) == same.uniform(0.0, 1.0)
    assert one.secret(32) == same.secret(32)


def test_an_identity_says_its_kind_and_is_never_the_same() -> None:
    chance = Chance()
    ids = {chance.id("task") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(name.startswith("task-") and len(name) > 25 for name in ids)


def test_a_number_is_within_its_bounds_and_a_secret_has_its_size() -> None:
    chance = Chance()
    assert all(2.0 <= chance.uniform(2.0, 3.0) <= 3.0 for _ in range(100))
    assert len(chance.secret(32)) == 32
