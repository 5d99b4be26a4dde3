-- Ends runs, as workers report it and as the sweeper decides.

-- name: finish_lookup
-- The runs of a list of reports (id, status, epoch) of one worker ($2), in the order of the list. Unknown runs are
-- left out.
SELECT {run_columns}, {finish_allowed} AS is_allowed, {caller_is_holder} AS is_holder
  FROM (SELECT report.key AS position, report.value ->> 0 AS run_id, report.value ->> 1 AS status,
               report.value ->> 2 AS epoch, $2 AS worker
          FROM json_each($1) report) caller
 CROSS JOIN runs r ON r.run_id = caller.run_id
  JOIN label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY caller.position

-- name: finish_start
-- A claimed run that ends passes through running.
UPDATE runs SET status = 'running', updated_at = $2 WHERE run_id IN (SELECT value FROM json_each($1))

-- name: finish_runs
-- Ends the runs of a list: id, status, cause, metadata as text, and whether the metadata changed. Then the original
-- metadata is kept as the input of a successor, which a successful run does not have.
UPDATE runs
   SET status = e.status, finished_at = $2, updated_at = $2, gate = NULL, end_cause = e.cause,
       input = iif(e.changed AND e.status <> 'success', coalesce(input, metadata), input), metadata = e.metadata_now
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS status, value ->> 2 AS cause,
               value ->> 3 AS metadata_now, value ->> 4 AS changed FROM json_each($1)) e
 WHERE runs.run_id = e.id

-- name: finish_runs_by_id
-- Runs in the order of the ids of a list. Unknown runs are left out.
SELECT {run_columns}
  FROM json_each($1) wanted
 CROSS JOIN runs r ON r.run_id = wanted.value
  JOIN label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY wanted.key
