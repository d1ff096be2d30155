"""What to write instead of a value of the wrong kind, beside what msgspec says of it."""

from __future__ import annotations

import re
from typing import Final

_CHOICES: Final = {
    "kind": '"process", "local", "kubernetes" or "replay"',
    "isolation": '"none" or "trusted"',
    "state": '"ready", "cordoned", "tainted", "not ready" or "stale"',
}
_TABLES: Final = {
    "pools": "[[pools]], in double brackets, above each pool",
    "attached_clusters": "[attached_clusters], in single brackets, above its keys",
    "provisioning_guard": "[provisioning_guard], in single brackets, above its keys",
    "node_cache": "[attached_clusters.node_cache], in single brackets, above its keys",
}
_KINDS: Final = {
    "bool": "true or false, without quotes",
    "int": "a whole number, without quotes",
    "float": "a number, without quotes",
    "str": "a text, in quotes",
    "object": "a table, such as { name = … }",
    "array": "a list, in square brackets",
}


def with_advice(said: str) -> str:
    """The sentence with what is right, ahead of where it is; unchanged where nothing is known to be."""
    right = _right(said)
    return said.replace(" - at", f": write {right} - at", 1) if right else said


def _right(said: str) -> str:
    if missing := re.match(r"Object missing required field `(\w+)`", said):
        return f"`{missing[1]} = …`"
    found = re.search(r"\.(\w+)(?:\[[^]]*\])*`$", said)
    key = found[1] if found else ""
    if said.startswith("Invalid enum value"):
        return _CHOICES.get(key, "")
    kind = re.match(r"Expected `(\w+)", said)
    return (_TABLES.get(key) or _KINDS.get(kind[1], "")) if kind else ""
