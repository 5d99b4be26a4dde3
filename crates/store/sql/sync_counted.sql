UPDATE {sync}.run_metadata SET completed_workers = $2, failed_workers = $3, updated_at = coalesce($4, {now})
 WHERE run_id = $1 AND (completed_workers <> $2 OR failed_workers <> $3)
