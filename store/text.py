"""What text a row can hold."""

from __future__ import annotations


def storable(text: str) -> str:
    """The text without what no Postgres text can hold: NUL, and halves of surrogate pairs, each replaced."""
    if "\0" not in text and text.isprintable():
        return text
    return text.replace("\0", "�").encode("utf-8", "replace").decode("utf-8", "replace")
