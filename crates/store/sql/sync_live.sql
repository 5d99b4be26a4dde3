SELECT run_id, ops_run_id, feed, run_type, state, trace_id, expected_workers, completed_workers, failed_workers,
       watermark_before, watermark_after, updated_from, updated_to, page_size, granularity, predicted, count_calls,
       scan_ms, heatmap, generation, rules_version, forced, advance, error, started_at, completed_at,
       consolidation_started_at, consolidation_completed_at, consolidation_processed, consolidation_errors,
       consolidation_total, deleted, delete_note, updated_at
  FROM {sync}.run_metadata WHERE state NOT IN ('completed', 'failed') ORDER BY started_at LIMIT $1
