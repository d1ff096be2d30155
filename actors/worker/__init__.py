"""A worker: containers on one machine, the attempts that run in them, and what the control plane must hear of both."""
