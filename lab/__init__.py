"""An emulated GPU cluster: a real Kubernetes API server and scheduler, simulated nodes with cards, faults on demand."""

from __future__ import annotations

from typing import Final

KUBERNETES: Final = "v1.36.3"  # as kube/go.mod pins it
