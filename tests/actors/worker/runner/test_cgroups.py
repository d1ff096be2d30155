"""Control groups, on folders that look like the kernel's."""

from pathlib import Path

from levers9_test_worker import bundle_module

cgroups = bundle_module("cgroups")


def v2(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "slice").mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    own = tmp_path / "own"
    own.write_text("0::/slice\n")
    return str(tmp_path), str(own)


def test_a_group_of_the_second_version_has_a_limit_and_a_weight(tmp_path: Path) -> None:
    root, own = v2(tmp_path)
    group = cgroups.make("c1", 64 << 20, 500, root, own)
    folder = tmp_path / "slice" / "levers9-c1"
    assert group.limits_memory
    assert (folder / "memory.max").read_text() == str(64 << 20)
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder / "cpu.weight").read_text() == "50"


def test_memory_kills_are_counted_in_both_versions(tmp_path: Path) -> None:
    root, own = v2(tmp_path)
    group = cgroups.make("c1", 1 << 20, 500, root, own)
    assert group.oom_kills() == 0
    folder = tmp_path / "slice" / "levers9-c1"
    (folder / "memory.events").write_text("oom 3\noom_kill 2\n")
    (folder / "memory.peak").write_text("12345\n")
    assert (group.oom_kills(), group.peak_bytes()) == (2, 12345)


def test_groups_of_the_first_version_are_one_for_each_controller(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n1:cpu,cpuacct:/\n0::/\n")
    for controller in ("memory", "cpu"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    group = cgroups.make("c1", 64 << 20, 500, str(tmp_path), str(own))
    assert group.limits_memory
    assert (tmp_path / "memory/levers9-c1/memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "cpu/levers9-c1/cpu.shares").read_text() == "512"


def test_where_nothing_is_allowed_there_is_no_group(tmp_path: Path) -> None:
    group = cgroups.make("c1", 64 << 20, 500, str(tmp_path / "none"), str(tmp_path / "nothing"))
    group.join()
    group.remove()
    assert (group.limits_memory, group.oom_kills(), group.peak_bytes()) == (False, 0, 0)
