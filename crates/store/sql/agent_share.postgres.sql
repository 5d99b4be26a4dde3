-- Differs: SQLite has one writer at a time, and needs no lock on a row.
-- The agents that alone have what jobs left: until the step ends they remove nothing of it.
SELECT a.name AS value FROM {ops}.agents a
 WHERE a.agent_id IN (SELECT o.agent_id FROM {ops}.job_outputs o WHERE o.job_id {in} $1 {ni} AND o.url IS NULL)
 ORDER BY a.agent_id FOR SHARE OF a
