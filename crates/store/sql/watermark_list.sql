SELECT changed_at, before_at, after_at, run_id, by_whom, note
  FROM {ops}.watermark_changes WHERE feed = $1 ORDER BY changed_at DESC LIMIT $2
