INSERT INTO {sync}.worker_runs (id, run_id, partition_id, worker_id, status, records_processed, work_item_payload,
    started_at)
VALUES ($1, $2, $3, $4, 'running', 0, $5, coalesce($6, {now}))
ON CONFLICT (run_id, partition_id) DO UPDATE SET worker_id = excluded.worker_id,
    work_item_payload = excluded.work_item_payload, status = 'running', error_message = NULL, completed_at = NULL
 WHERE worker_runs.status = 'failed'
