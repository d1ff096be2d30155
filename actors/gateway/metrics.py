"""Metrics for Prometheus: read from statistics when asked for, so that nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .auth import GateStatistics
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
        for role, count in (("client", relay.clients), ("worker", relay.workers), ("relay", relay.relays)):
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


def build_metrics_app(relay: Callable[[], RelayStatistics], gate: Callable[[], GateStatistics]) -> Starlette:
    """An application that answers `GET /metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(GatewayCollector(relay, gate))

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=_TYPE)

    return Starlette(routes=[Route("/metrics", metrics)])
