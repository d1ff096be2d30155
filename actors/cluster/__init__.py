"""Attached clusters as the control plane knows them: who owns and shares them, their nodes, their workers' Jobs."""

from .actor import ADDRESS, ClustersActor
from .decisions import ClusterPool
from .settings import ClusterSettings, Configured

__all__ = ["ADDRESS", "ClusterPool", "ClusterSettings", "ClustersActor", "Configured"]
