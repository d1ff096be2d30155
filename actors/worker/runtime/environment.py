"""What of the worker's environment the person's code may see: how to find programs, devices and the way out, no secret.

It is a list of what passes: whatever else a pod is given, tokens, addresses of its cluster's services, stays with the
worker. A proxy passes where no password is written in it: that is the cluster's, and not the code's.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import Final

from ..events import Launch

_NAMES: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "SHELL", "TERM", "VIRTUAL_ENV"}
    | {"PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "OMP_NUM_THREADS"}
)
_PREFIXES: Final = ("LC_", "CUDA_", "NVIDIA_", "NCCL_")
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})  # in either case


def rank_variables(launch: Launch) -> dict[str, str]:
    """What the code of a gang's member is told: in our names, and in those of distributed libraries.

    Where rank 0 is comes with each call: LEVERS9_RANK0_ADDRESS, MASTER_ADDR, MASTER_PORT (see `runner/`).
    """
    if not launch.gang_id:
        return {}
    rank, world_size = str(launch.rank), str(launch.world_size)
    ours = {"LEVERS9_GANG": launch.gang_id, "LEVERS9_RANK": rank, "LEVERS9_WORLD_SIZE": world_size}
    return ours | {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": "0"}


def visible(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of `environ` that containers inherit."""
    return {name: value for name, value in environ.items() if _passes(name, value)}


def _passes(name: str, value: str) -> bool:
    if name.lower() in _PROXIES:
        return "@" not in urllib.parse.unquote(value)
    return name in _NAMES or name.startswith(_PREFIXES)
