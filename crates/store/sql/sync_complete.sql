UPDATE {sync}.run_metadata
   SET state = 'completed', error = NULL, completed_at = coalesce($3, {now}), watermark_after = $2,
       consolidation_processed = (SELECT coalesce(sum(p.consolidated), 0) FROM {sync}.partition_progress p
                                   WHERE p.run_id = $1),
       consolidation_errors = (SELECT coalesce(sum(p.refused), 0) FROM {sync}.partition_progress p
                                WHERE p.run_id = $1),
       consolidation_completed_at = coalesce($3, {now}), updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state = $4
