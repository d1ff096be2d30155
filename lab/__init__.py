"""An emulated GPU cluster: a real Kubernetes API server and scheduler, simulated nodes with cards, faults on demand."""
