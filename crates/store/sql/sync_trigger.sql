UPDATE {sync}.run_metadata
   SET state = 'consolidation_triggered', error = NULL, generation = generation + 1, forced = $3, advance = $4,
       consolidation_total = (SELECT coalesce(sum(p.stored), 0) FROM {sync}.partition_progress p
                               WHERE p.run_id = $1),
       rules_version = $5, updated_at = coalesce($6, {now})
 WHERE run_id = $1 AND state = $2
RETURNING CAST(generation AS bigint) AS value
