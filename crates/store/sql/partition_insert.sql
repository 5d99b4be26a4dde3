INSERT INTO {sync}.partition_progress (run_id, partition_id, price_from, price_to, predicted, updated_from, gap_id,
    created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, {now}), coalesce($8, {now}))
