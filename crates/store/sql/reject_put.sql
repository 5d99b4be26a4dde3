INSERT INTO {ops}.rejected_rows AS r (feed, supplier_stone_id, run_id, partition_id, stage, reason, payload,
    first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}), coalesce($8, {now}))
ON CONFLICT (feed, supplier_stone_id) DO UPDATE SET run_id = excluded.run_id, partition_id = excluded.partition_id,
    stage = excluded.stage, reason = excluded.reason, payload = excluded.payload, times = r.times + 1,
    last_at = excluded.last_at
