DELETE FROM {ops}.pools
 WHERE name = $1
   AND NOT EXISTS (SELECT 1 FROM {ops}.jobs j WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = $1)
