"""What of the worker's environment the person's code may see: how to find programs and devices, and no secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL", "TERM", "VIRTUAL_ENV"}
    | {"PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "OMP_NUM_THREADS"}
)
_PREFIXES: Final = ("LC_", "CUDA_", "NVIDIA_", "NCCL_")


def visible(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of `environ` that containers inherit."""
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}
