-- Differs: SQLite has one writer at a time, and needs no lock on a row.
SELECT agent_id, name, host, labels, capacity, version, project_id, token_id, boot_id, draining,
       registered_at, seen_at, left_at,
       forgotten_at, secret_hash
  FROM {ops}.agents WHERE agent_id = $1 FOR NO KEY UPDATE
