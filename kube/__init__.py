"""What we need of the Kubernetes API, on Trio; and a cluster in memory with the same face."""
