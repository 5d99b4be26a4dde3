UPDATE {sync}.run_metadata
   SET state = 'consolidating', consolidation_started_at = coalesce(consolidation_started_at, $2, {now}),
       updated_at = coalesce($2, {now})
 WHERE run_id = $1 AND state IN ('consolidation_triggered', 'consolidating')
