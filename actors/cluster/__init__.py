"""Attached clusters as the control plane knows them: who owns and shares them, their nodes, their workers' Jobs."""
