"""Which actors make a control plane, a worker, a gateway, a laptop."""
