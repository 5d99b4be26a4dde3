-- Ids sort by age, so the oldest come first and nothing younger is read. They are taken while those before them have
-- fewer events than may go in one step: a run with more than that goes too, and its events follow step by step.
DELETE FROM {ops}.runs WHERE run_id IN (
    SELECT told.run_id FROM (
        SELECT old.run_id, sum(old.events) OVER (ORDER BY old.run_id) - old.events AS events_before
          FROM (SELECT r.run_id, (SELECT coalesce(max(e.seq), 0) FROM {ops}.run_events e
                                   WHERE e.run_id = r.run_id) AS events
                  FROM {ops}.runs r
                 WHERE r.run_id < $1 AND r.finished_at < $2 ORDER BY r.run_id LIMIT $3) old) told
     WHERE told.events_before < $4)
RETURNING run_id AS value
