"""What files say of queues: read, checked with its place, and with the workspaces that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from levers9.actors.committing import Surroundings
from levers9.daemons.queueing import queueing_of_files
from levers9.daemons.settings import load_settings
from levers9.errors import ConfigError
from levers9.model.ids import Chance
from levers9.model.queue_tables import QueueingTable, ShareTable
from levers9.model.queues import Queue
from levers9.store.memory import MemoryStore
from levers9.store.operations import CreateWorkspace, ListWorkspaces, TakeLeadership, WorkspaceRow, rows_of
from levers9.wire.post import Post

TEXT = """\
[[queueing.topologies]]
name = "nvl"
levels = ["domain"]

[[queueing.flavors]]
name = "gb200"
gpu_type = "GB200"
topology = "nvl"

[[queueing.quotas]]
name = "gpu"
flavors = [{ flavor = "gb200", cpu = 8, memory = "18Gi", gpu = { nominal = 8, lending = 2 } }]

[[queueing.queues]]
name = "gpu"
workspace = "lab"
quota = "gpu"
"""


def test_queues_and_quotas_stand_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT)
    found = load_settings(path, {}).queueing
    assert (found.quotas[0].name, found.queues, found.topologies[0].levels) == (
        "gpu",
        (Queue(name="gpu", workspace="lab", quota="gpu"),),
        ("domain",),
    )


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("gpu = { nominal = 8", "gpus = { nominal = 8", "queueing.quotas[0].flavors[0]: Object contains unknown field"),
        ('levels = ["domain"]', "levels = 3", "queueing.topologies[0].levels: Expected `array`, got `int`."),
        ("cpu = 8", "cpu = 'many'", "queueing: 'many' is not a quantity."),
        ('topology = "nvl"', 'topology = "ib"', "queueing: Flavor gb200 names the topology ib, which is not there."),
        ('quota = "gpu"', 'quota = "tpu"', "queueing: Queue lab/gpu names the quota tpu, which is not there. Add it"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(TEXT.replace(right, wrong))
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert f"{path}: {told}" in str(caught.value)


async def test_workspaces_that_are_named_and_not_there_are_made_once() -> None:
    store, chance = MemoryStore(), Chance(7)
    await store.apply(
        TakeLeadership(holder="a", url="", now_s=1.0),
        CreateWorkspace(workspace_id="ws-lab", name="lab", now_s=0.0),
    )
    around = Surroundings(post=Post(chance=chance, clock=lambda: 1.0), store=store, epoch=1, clock=lambda: 1.0)
    table = QueueingTable(
        queues=(Queue(name="q", workspace="lab"), Queue(name="q", workspace="new")),
        shares=(ShareTable(workspace="ws-lab"), ShareTable(workspace="new")),
    )
    found = await queueing_of_files(around, table, chance)
    (rows,) = await store.apply(ListWorkspaces())
    ids = {row.name: row.workspace_id for row in rows_of(rows, WorkspaceRow)}
    assert sorted(ids) == ["lab", "new"]
    assert [queue.workspace for queue in found.queues] == ["ws-lab", ids["new"]]
    assert [share.workspace for share in found.shares] == ["ws-lab", ids["new"]]
    assert await queueing_of_files(around, table, chance) == found
