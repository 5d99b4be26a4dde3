-- Queues several runs. Each run is queued with the statements of queue.sql.

-- name: queue_environment
SELECT 1 FROM environments e WHERE e.project_id = $1 AND e.env_type = $2
