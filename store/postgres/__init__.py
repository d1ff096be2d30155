"""The truth in Postgres: one statement an operation, group commit, asyncpg in an asyncio thread behind the face."""

from .store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "open_postgres"]
