-- Runs of graphs that go on although every job of them has ended: a statement did that, and no step of a controller.
SELECT r.run_id AS value FROM {ops}.runs r JOIN {ops}.graphs g ON g.run_id = r.run_id
 WHERE r.lane = 'graph' AND r.finished_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE j.run_id = r.run_id AND j.ended_at IS NULL)
 LIMIT $1
