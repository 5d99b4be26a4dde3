-- Live events: every event says which transaction wrote it, so that readers can tell what has ended since they looked.
-- A sequence would not do: its numbers commit in another order than they are given. Nor would a number that is given
-- in the order of commits: every commit would wait for the one before.

-- Events that exist count as written by this migration.
ALTER TABLE {ops}.run_events
    ADD COLUMN xact bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint;
-- Events stand in the table in about the order of their transactions. A tree would cost each of them a page and a lock.
CREATE INDEX run_events_xact ON {ops}.run_events USING brin (xact) WITH (pages_per_range = 32, autosummarize = on);
