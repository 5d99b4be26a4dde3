-- A sync that is being consolidated goes on by other rules.
UPDATE {sync}.run_metadata SET rules_version = $2, updated_at = coalesce($3, {now})
 WHERE run_id = $1 AND state IN ('consolidation_triggered', 'consolidating')
