"""The agent in an attached cluster: it reports nodes, and keeps the Jobs of workers that were ordered."""

from .actor import AgentActor, AgentStatistics
from .jobs import Place

__all__ = ["AgentActor", "AgentStatistics", "Place"]
