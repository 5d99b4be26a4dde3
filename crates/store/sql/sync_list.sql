SELECT run_id, ops_run_id, feed, run_type, state, trace_id, expected_workers, completed_workers, failed_workers,
       watermark_before, watermark_after, updated_from, updated_to, page_size, granularity, predicted, count_calls,
       scan_ms, heatmap, generation, rules_version, forced, advance, error, started_at, completed_at,
       consolidation_started_at, consolidation_completed_at, consolidation_processed, consolidation_errors,
       consolidation_total, deleted, delete_note, updated_at
  FROM {sync}.run_metadata
 WHERE ($1 IS NULL OR feed = $1)
   AND ($3 IS NULL OR feed IN (SELECT f.feed FROM {ops}.feeds f WHERE f.project_id = $3))
   AND ($4 IS NULL OR (started_at, run_id) < (SELECT p.started_at, p.run_id FROM {sync}.run_metadata p
                                               WHERE p.run_id = $4))
 ORDER BY started_at DESC, run_id DESC LIMIT $2
