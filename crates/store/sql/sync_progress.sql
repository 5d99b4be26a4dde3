UPDATE {sync}.run_metadata SET deleted = deleted + $2, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state = 'consolidating'
