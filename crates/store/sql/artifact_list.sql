SELECT artifact_id, run_id, artifact_type, url, digest, size_bytes, metadata, created_at
  FROM {ops}.artifacts
 WHERE run_id = $1
   AND ($3 IS NULL OR (created_at, artifact_type, url) > (SELECT p.created_at, p.artifact_type, p.url
                                                            FROM {ops}.artifacts p
                                                           WHERE p.run_id = $1 AND p.artifact_id = $3))
 ORDER BY created_at, artifact_type, url LIMIT $2
