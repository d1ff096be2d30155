"""The truth in Postgres: one statement an operation, group commit, asyncpg in an asyncio thread behind the face."""
