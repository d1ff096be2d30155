"""What people write becomes integers, and is shown again as they would write it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levers9.errors import INVALID, NOT_FOUND, Refused
from levers9.model.queue_tables import (
    FlavorLimitsTable,
    LimitsTable,
    QueueingTable,
    QuotaTable,
    ShareTable,
    mebibytes,
    memory,
    queueing_of,
    table_of,
    thousandths,
    units,
)
from levers9.model.queues import FlavorLimits, Limits, Queue, Queueing, Quota, Share

JSON = """
{
  "quotas": [
    {"name": "gpu", "flavors": [{"flavor": "gb200", "cpu": 8, "memory": "18Gi", "gpu": {"nominal": 8, "lending": 0.5}}]}
  ],
  "queues": [{"name": "gpu", "workspace": "lab", "quota": "gpu"}],
  "shares": [{"workspace": "ws-2", "max_cpu": "500m"}]
}
"""
LIMITS = FlavorLimits(
    flavor="gb200",
    cpu=Limits(nominal=8000),
    memory=Limits(nominal=18 * 1024),
    gpu=Limits(nominal=8000, lending=500),
)
QUEUEING = Queueing(
    quotas=(Quota(name="gpu", flavors=(LIMITS,)),),
    queues=(Queue(name="gpu", workspace="ws-1", quota="gpu"),),
    shares=(Share(workspace="ws-2", max_cpu_milli=500),),
)
NAMES = {"lab": "ws-1", "other": "ws-2"}


def test_a_table_becomes_integers_and_identities() -> None:
    assert queueing_of(msgspec.json.decode(JSON, type=QueueingTable), NAMES) == QUEUEING


def test_a_configuration_is_shown_as_people_write_it() -> None:
    table = table_of(QUEUEING, {identity: name for name, identity in NAMES.items()})
    assert table.quotas == (
        QuotaTable(
            name="gpu",
            flavors=(FlavorLimitsTable(flavor="gb200", cpu=8, memory="18Gi", gpu=LimitsTable(nominal=8, lending=0.5)),),
        ),
    )
    assert (table.queues[0].workspace, table.shares[0]) == ("lab", ShareTable(workspace="other", max_cpu=0.5))


def test_names_are_left_alone_where_nobody_knows_the_workspaces() -> None:
    table = QueueingTable(queues=(Queue(name="q", workspace="lab"),))
    assert queueing_of(table).queues[0].workspace == "lab"
    with pytest.raises(Refused, match=r"There is no workspace 'lab'. Workspaces: a, b.") as caught:
        queueing_of(table, {"a": "1", "b": "2"})
    assert caught.value.code == NOT_FOUND


@pytest.mark.parametrize(
    ("given_", "milli"), [(8, 8000), (0, 0), (0.5, 500), ("8", 8000), ("0.25", 250), ("500m", 500), (10**15, 10**18)]
)
def test_cpus_and_cards_are_read_as_thousandths(given_: float | str, milli: int) -> None:
    assert thousandths(given_) == milli


@pytest.mark.parametrize("wrong", [-1, "many", "", "m", float("nan"), float("inf"), 10**16, "-5m", True])
def test_what_is_no_number_of_cpus_is_refused(wrong: float | str) -> None:
    with pytest.raises(Refused, match="is not a quantity") as caught:
        thousandths(wrong)
    assert caught.value.code == INVALID


@pytest.mark.parametrize(("given_", "mib"), [(512, 512), (0, 0), ("0", 0), ("16Gi", 16_384), (1.5, 2), ("1.5G", 1431)])
def test_memory_may_be_none_at_all(given_: float | str, mib: int) -> None:
    assert mebibytes(given_) == mib


@pytest.mark.parametrize("wrong", [-1, "1Pi", float("nan"), float("inf"), "many", "9999999999999999999999Ti"])
def test_memory_that_is_no_quantity_is_refused(wrong: float | str) -> None:
    with pytest.raises(Refused):
        mebibytes(wrong)


@given(st.integers(0, 2**63 - 1))
def test_quantities_come_back_as_they_were(amount: int) -> None:
    assert thousandths(units(amount)) == amount
    assert mebibytes(memory(amount % 2**40)) == amount % 2**40
