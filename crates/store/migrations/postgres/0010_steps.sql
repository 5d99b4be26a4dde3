-- What a step of a run costs besides its own writing: index entries that say nothing new, and checks and conditions
-- that are read and prepared anew for every statement (ADR 19).

-- The runs of an environment are found by their first events. An event never changes, so it is entered once; a run is
-- entered anew in all of its indexes by every claim and every finish.
DROP INDEX {ops}.runs_of_env;
ALTER TABLE {ops}.run_events ADD COLUMN env_id text COLLATE "C";
ALTER TABLE {ops}.run_events DISABLE TRIGGER USER;
UPDATE {ops}.run_events e SET env_id = r.env_id FROM {ops}.runs r WHERE r.run_id = e.run_id AND e.seq = 1;
ALTER TABLE {ops}.run_events ENABLE TRIGGER USER;
CREATE INDEX runs_of_env ON {ops}.run_events (env_id, run_id) WHERE env_id IS NOT NULL;

-- One guard takes the place of checks and conditions.
ALTER TABLE {ops}.runs DROP CONSTRAINT run_is_whole, DROP CONSTRAINT run_id_is_a_run_id;
DROP TRIGGER IF EXISTS run_change ON {ops}.runs;
DROP TRIGGER IF EXISTS run_times ON {ops}.runs;
DROP TRIGGER IF EXISTS run_by_hand ON {ops}.runs;
DROP FUNCTION IF EXISTS {ops}.check_run_change, {ops}.keep_attention, {ops}.complete_run_insert, {ops}.is_by_hand,
    {ops}.run_is_whole;
