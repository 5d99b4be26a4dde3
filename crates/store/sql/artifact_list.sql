SELECT artifact_id, run_id, artifact_type, url, digest, size_bytes, metadata, created_at
  FROM {ops}.artifacts
 WHERE run_id = $1
 ORDER BY created_at, artifact_type, url
