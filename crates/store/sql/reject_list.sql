SELECT feed, supplier_stone_id, run_id, partition_id, stage, reason, payload, times, first_at, last_at
  FROM {ops}.rejected_rows WHERE $1 IS NULL OR feed = $1 ORDER BY last_at DESC, supplier_stone_id LIMIT $2
