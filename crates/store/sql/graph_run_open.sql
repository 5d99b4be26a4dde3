-- Runs of graphs that go on although every job of them has ended: a statement did that, and no step of a controller.
-- By the indexes of what is held and of what stands in line, where a graph has no key: an index of its own would be
-- opened and asked by every step of every run.
SELECT r.run_id AS value FROM {ops}.runs r JOIN {ops}.graphs g ON g.run_id = r.run_id
 WHERE r.lane = 'graph' AND r.claimed_by >= '' AND r.finished_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE j.run_id = r.run_id AND j.ended_at IS NULL)
 UNION ALL
SELECT r.run_id FROM {ops}.projects p
  JOIN {ops}.runs r ON r.project_id = p.project_id AND r.concurrency_key IS NULL AND r.gate = 'key'
  JOIN {ops}.graphs g ON g.run_id = r.run_id
 WHERE r.lane = 'graph'
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE j.run_id = r.run_id AND j.ended_at IS NULL)
 LIMIT $1
