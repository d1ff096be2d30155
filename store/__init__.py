"""The closed set of operations on the truth, in Postgres or in memory; routes and wake-ups in Redis; objects."""
