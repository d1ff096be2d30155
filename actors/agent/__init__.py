"""The agent in an attached cluster: it reports nodes, and keeps the Jobs of workers that were ordered."""
