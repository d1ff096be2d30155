"""What the actors of one brain have done since its process began, over all its reigns."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, kw_only=True):
    """Only ever grows. `tasks_failed` of `tasks_finished` did not complete; commits include those that failed."""

    tasks_accepted: int = 0
    tasks_finished: int = 0
    tasks_failed: int = 0
    commits: int = 0
    commit_s: float = 0.0
