"""Bringing a database to this program's schema, once, whoever comes first."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

from ...errors import Refused
from .session import Session

_LOCK: Final = 0x6C657665727339  # "levers9"


class Migration(msgspec.Struct, frozen=True):
    """A step of the schema: its number (from 1, without gaps), its name, its SQL."""

    number: int
    name: str
    sql: str


def known_migrations() -> tuple[Migration, ...]:
    """Those of this program, in order."""
    folder = files(f"{__package__}.migrations")
    found = [path for path in folder.iterdir() if path.name.endswith(".sql")]
    return tuple(
        Migration(int(path.name[:4]), path.name[5:-4], path.read_text(encoding="utf-8"))
        for path in sorted(found, key=lambda path: path.name)
    )


async def migrate(session: Session, migrations: tuple[Migration, ...]) -> None:
    """Apply what is missing. Processes that start at once wait for each other. On the island.

    Raises `Refused` when the database has steps that this program does not know.
    """
    await session.execute(f"SELECT pg_advisory_lock({_LOCK})")
    try:
        await session.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations "
            "(number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        rows = await session.fetch("SELECT coalesce(max(number), 0) FROM schema_migrations", ())
        done: int = rows[0][0]
        _refuse_newer(done, migrations[-1].number)
        for migration in migrations[done:]:
            await _apply(session, migration)
    finally:
        if not session.closed:
            await session.execute(f"SELECT pg_advisory_unlock({_LOCK})")


def _refuse_newer(done: int, known: int) -> None:
    if done > known:
        raise Refused(
            "This database belongs to a newer levers9.",
            f"Its schema has step {done}; this program knows steps up to {known}.",
            "Run the newer version, or restore a backup from before the upgrade.",
            "newer_schema",
        )


async def _apply(session: Session, migration: Migration) -> None:
    """In one transaction: words that are sent together are one."""
    name = migration.name.replace("'", "''")
    record = f"INSERT INTO schema_migrations (number, name) VALUES ({migration.number}, '{name}')"
    await session.execute(f"{migration.sql};\n{record}")
