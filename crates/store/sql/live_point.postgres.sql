-- Differs: transactions overlap, and only a snapshot says which of them have ended.
SELECT pg_current_snapshot()::text AS value
