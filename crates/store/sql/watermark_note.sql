INSERT INTO {ops}.watermark_changes (feed, changed_at, before_at, after_at, run_id, by_whom, note)
VALUES ($1, coalesce($2, {now}), $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING
