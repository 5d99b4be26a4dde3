UPDATE {ops}.alerts SET resolved_at = coalesce($3, {now})
 WHERE kind = $1 AND subject = $2 AND resolved_at IS NULL AND subject <> ''
