INSERT INTO {sync}.run_metadata (run_id, ops_run_id, feed, run_type, state, trace_id, expected_workers,
    watermark_before, updated_from, updated_to, page_size, granularity, predicted, count_calls, scan_ms, heatmap,
    started_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, coalesce($17, {now}),
    coalesce($17, {now}))
ON CONFLICT DO NOTHING
