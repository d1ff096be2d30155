"""Metrics for Prometheus: read from statistics when asked for, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...wire.control import ChildStanding, Totals
from .auth import GateStatistics
from .fleet import Fleet
from .relay import RelayStatistics

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class GatewayCollector(Collector):
    """The relay and the gate, as metrics."""

    def __init__(self, relay: Callable[[], RelayStatistics], gate: Callable[[], GateStatistics]) -> None:
        self._relay = relay
        self._gate = gate

    def collect(self) -> Iterable[Metric]:
        """All metrics, as they are now."""
        relay, gate = self._relay(), self._gate()
        peers = GaugeMetricFamily("levers9_gateway_peers", "Open sessions.", labels=["role"])
        roles = (("client", relay.clients), ("worker", relay.workers), ("agent", relay.agents), ("relay", relay.relays))
        for role, count in roles:
            peers.add_metric([role], count)
        yield peers
        envelopes = CounterMetricFamily(
            "levers9_gateway_envelopes", "Envelopes, by what became of them.", labels=["way"]
        )
        for way, count in (
            ("up", relay.up),
            ("down", relay.down),
            ("dropped", relay.dropped),
            ("refused", relay.refused),
        ):
            envelopes.add_metric([way], count)
        yield envelopes
        yield CounterMetricFamily("levers9_gateway_overflows", "Peers that were too slow.", value=relay.overflows)
        yield CounterMetricFamily("levers9_gateway_auth_failures", "Tokens that were refused.", value=gate.failures)
        yield GaugeMetricFamily("levers9_gateway_brain_open", "Whether the brain is linked.", value=relay.brain_open)
        yield GaugeMetricFamily("levers9_gateway_leader_epoch", "The leader's epoch.", value=relay.epoch)


class FleetCollector(Collector):
    """The brain that leads, workers and containers, as metrics. Each gateway tells the same of them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterable[Metric]:
        """All metrics, as they were when looked at."""
        fleet = self._fleet
        if fleet.tree is not None:
            yield from _actors(fleet.tree.children)
            yield from _totals(fleet.tree.totals)
            dead = fleet.tree.dead_letters
            yield CounterMetricFamily("levers9_dead_letters", "Messages that nobody could be given.", value=dead)
        if fleet.store_read_s is None:
            return
        yield GaugeMetricFamily("levers9_store_read_seconds", "How long reading this took.", value=fleet.store_read_s)
        workers = GaugeMetricFamily("levers9_workers", "Workers that are not gone.", labels=["pool", "state"])
        for pool, state, count in fleet.workers:
            workers.add_metric([pool, state], count)
        yield workers
        containers = GaugeMetricFamily("levers9_containers", "Containers that have not ended.", labels=["state"])
        for state, count in fleet.containers:
            containers.add_metric([state], count)
        yield containers


def _actors(children: Iterable[ChildStanding]) -> Iterable[Metric]:
    depth = GaugeMetricFamily("levers9_mailbox_depth", "Messages that wait for an actor.", labels=["actor"])
    slots = GaugeMetricFamily("levers9_mailbox_slots", "Messages that may wait for an actor.", labels=["actor"])
    received = CounterMetricFamily("levers9_messages_received", "Messages put before an actor.", labels=["actor"])
    handled = CounterMetricFamily("levers9_messages_handled", "Messages an actor was done with.", labels=["actor"])
    failed = CounterMetricFamily("levers9_messages_failed", "Messages an actor crashed on.", labels=["actor"])
    restarts = CounterMetricFamily("levers9_restarts", "Lives of a child beyond its first.", labels=["actor"])
    for child in children:
        for family, value in (
            (depth, child.mailbox_depth),
            (slots, child.mailbox_slots),
            (received, child.received),
            (handled, child.handled),
            (failed, child.failed),
            (restarts, child.restarts),
        ):
            family.add_metric([child.path], value)
    return (depth, slots, received, handled, failed, restarts)


def _totals(totals: Totals) -> Iterable[Metric]:
    for name, text, count in (
        ("levers9_tasks_accepted", "Calls that were accepted.", totals.tasks_accepted),
        ("levers9_tasks_finished", "Calls whose last attempt ended, or that expired.", totals.tasks_finished),
        ("levers9_tasks_failed", "Those of them that did not complete.", totals.tasks_failed),
        ("levers9_store_operations", "Operations of the brain on its store.", totals.store_operations),
        ("levers9_store_commits", "Commits of the brain's store.", totals.store_commits),
        ("levers9_store_failures", "Failures of the brain's store.", totals.store_failures),
    ):
        yield CounterMetricFamily(name, text, value=count)
    largest, waiting = totals.store_largest_group, totals.store_waiting
    yield GaugeMetricFamily("levers9_store_largest_group", "The most that one commit took in.", value=largest)
    yield GaugeMetricFamily("levers9_store_waiting", "Who waits for the brain's store now.", value=waiting)
    text = "How long the brain's actors waited for their commits."
    yield SummaryMetricFamily("levers9_commit_seconds", text, count_value=totals.commits, sum_value=totals.commit_s)


def build_metrics_app(
    relay: Callable[[], RelayStatistics],
    gate: Callable[[], GateStatistics],
    look: Callable[[], Awaitable[Fleet]],
) -> Starlette:
    """An application that answers `GET /metrics`."""
    own = GatewayCollector(relay, gate)

    async def metrics(request: Request) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(own)
        registry.register(FleetCollector(await look()))
        return Response(generate_latest(registry), media_type=_TYPE)

    return Starlette(routes=[Route("/metrics", metrics)])
