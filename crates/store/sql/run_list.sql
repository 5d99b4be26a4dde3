-- Lists of runs. A single statement with `$1 IS NULL OR ...` for every filter would get one plan for all of them, so
-- the most selective part of a filter chooses the statement. All of these statements have the same parameters.

-- fragment: list_start
-- The earliest time of a list, as a bound of an index.
coalesce($16, {time_first})

-- fragment: list_end
-- The time at which a page ends, as a bound of an index; $19 is the id there. The time of a cursor is read from its run
-- while that exists, because $18 cannot express every time of the database.
coalesce((SELECT c.created_at FROM {ops}.runs c WHERE c.run_id = $19), $18, {time_last})

-- fragment: list_window
-- The time and the page of a list for the run `r`, by the index runs_by_age or runs_of_env. The condition <= changes no
-- result: with it, the planner knows that the bounds are a range, and expects few rows.
r.created_at >= {list_start} AND r.created_at <= {list_end} AND (r.created_at, r.run_id) < ({list_end}, $19)

-- fragment: run_filter (postgres)
-- Differs: a prefix is a range only in byte order, which is a collation here and the default of SQLite.
-- All conditions of a filter, for the run `r`. IS TRUE excludes the index runs_by_age: the planner would read it
-- completely to join it with a few runs.
(r.created_at >= {list_start} AND (r.created_at, r.run_id) < ({list_end}, $19)) IS TRUE
AND ($17 IS NULL OR r.created_at < $17) AND ($1 IS NULL OR (r.run_id >= $1 AND r.run_id < $2))
AND ($4 IS NULL OR r.project_id = $4)
AND ($5 IS NULL OR r.env_id = r.project_id || '/' || $5) AND ($6 IS NULL OR r.status = $6)
AND ($7 IS NULL OR r.lane = $7) AND ($8 IS NULL OR (r.concurrency_key = $8 AND r.lane = 'sync'))
AND ($15 IS NULL OR r.kind = $15)
AND ($9 IS NULL OR (r.git_sha >= $9 COLLATE "C" AND r.git_sha < $10 COLLATE "C"))
AND ($11 IS NULL OR (r.git_ref >= $11 COLLATE "C" AND r.git_ref < $12 COLLATE "C"))
AND ($13 IS NULL OR CASE r.lane
     WHEN 'graph' THEN (SELECT c.name >= $13 COLLATE "C" AND c.name < $14 COLLATE "C"
                          FROM {ops}.graphs c WHERE c.run_id = r.run_id)
     WHEN 'sync' THEN r.concurrency_key >= 'feed:' || $13 AND r.concurrency_key < 'feed:' || $14 END)

-- fragment: run_filter (sqlite)
(r.created_at >= {list_start} AND (r.created_at, r.run_id) < ({list_end}, $19)) IS TRUE
AND ($17 IS NULL OR r.created_at < $17) AND ($1 IS NULL OR (r.run_id >= $1 AND r.run_id < $2))
AND ($4 IS NULL OR r.project_id = $4)
AND ($5 IS NULL OR r.env_id = r.project_id || '/' || $5) AND ($6 IS NULL OR r.status = $6)
AND ($7 IS NULL OR r.lane = $7) AND ($8 IS NULL OR (r.concurrency_key = $8 AND r.lane = 'sync'))
AND ($15 IS NULL OR r.kind = $15)
AND ($9 IS NULL OR (r.git_sha >= $9 AND r.git_sha < $10))
AND ($11 IS NULL OR (r.git_ref >= $11 AND r.git_ref < $12))
AND ($13 IS NULL OR CASE r.lane
     WHEN 'graph' THEN (SELECT c.name >= $13 AND c.name < $14
                          FROM {ops}.graphs c WHERE c.run_id = r.run_id)
     WHEN 'sync' THEN r.concurrency_key >= 'feed:' || $13 AND r.concurrency_key < 'feed:' || $14 END)

-- fragment: queued_run_ids
-- The ids of all queued runs: one search in each of the indexes by gate. A run with gate `time` has attention_at.
SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open'
UNION ALL SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key'
UNION ALL SELECT t.run_id FROM {ops}.runs t WHERE t.gate = 'time' AND t.attention_at IS NOT NULL

-- name: run_list
-- The youngest first. The index runs_by_age gives the order and the page.
SELECT {run_columns}
  FROM {ops}.runs r JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE {list_window} AND {run_filter}
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_id
-- While few runs have a prefix of ids, reads all of them by the primary key, and sorts.
WITH prefixed AS MATERIALIZED (SELECT i.run_id FROM {ops}.runs i WHERE i.run_id >= $1 AND i.run_id < $2)
SELECT {run_columns}
  FROM prefixed p JOIN {ops}.runs r ON r.run_id = p.run_id JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE {run_filter}
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_id_count
-- Counts the runs with a prefix of ids, up to $3.
SELECT count(*) AS value
  FROM (SELECT 1 AS one FROM {ops}.runs i WHERE i.run_id >= $1 AND i.run_id < $2 LIMIT $3) counted

-- name: run_list_ended (postgres)
-- Failed or cancelled runs, by the table unsuccessful_runs.
-- Differs: on PostgreSQL each row looks up its run by itself (OFFSET 0): a generic plan would merge both tables and
-- read all runs for a few cancelled ones. SQLite looks up each run by its key, and has no LATERAL.
SELECT {run_columns}
  FROM {ops}.unsuccessful_runs n
 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = n.run_id OFFSET 0) r
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE n.status = $6 AND n.created_at >= {list_start} AND (n.created_at, n.run_id) < ({list_end}, $19)
   AND {run_filter}
 ORDER BY n.created_at DESC, n.run_id DESC LIMIT $3

-- name: run_list_ended (sqlite)
SELECT {run_columns}
  FROM {ops}.unsuccessful_runs n
  JOIN {ops}.runs r ON r.run_id = n.run_id
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE n.status = $6 AND n.created_at >= {list_start} AND (n.created_at, n.run_id) < ({list_end}, $19)
   AND {run_filter}
 ORDER BY n.created_at DESC, n.run_id DESC LIMIT $3

-- fragment: failures_end
-- The time at which a page of failures ends, as list_end.
coalesce((SELECT c.created_at FROM {ops}.runs c WHERE c.run_id = $4), $3, {time_last})

-- name: run_failures (postgres)
-- Failed runs without a successor, and without a newer completed sync of the feed. Each successor is looked up by
-- itself, which a join would not guarantee.
-- Differs: on PostgreSQL each row looks up its run by itself (OFFSET 0), as in run_list_ended. SQLite looks up each run
-- by its key, and has no LATERAL.
SELECT {run_columns}
  FROM {ops}.unsuccessful_runs n
 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = n.run_id OFFSET 0) r
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE n.status = 'failed' AND (n.created_at, n.run_id) >= (coalesce($1, {time_first}), $2)
   AND (n.created_at, n.run_id) < ({failures_end}, $4) AND ($6 IS NULL OR r.project_id = $6)
   AND (SELECT t.run_id FROM {ops}.run_lookup t WHERE t.kind = 'retry_of' AND t.value = n.run_id) IS NULL
   AND (r.lane <> 'sync' OR (SELECT d.run_id FROM {sync}.run_metadata d
                              WHERE d.feed = substr(r.concurrency_key, 6) AND d.state = 'completed'
                                -- A refused retry has no sync of its own: the sync that it was to continue counts.
                                AND d.started_at > coalesce((SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.run_id),
                                                            (SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.retry_of), r.started_at)
                              LIMIT 1) IS NULL)
 ORDER BY n.created_at DESC, n.run_id DESC LIMIT $5

-- name: run_failures (sqlite)
SELECT {run_columns}
  FROM {ops}.unsuccessful_runs n
  JOIN {ops}.runs r ON r.run_id = n.run_id
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE n.status = 'failed' AND (n.created_at, n.run_id) >= (coalesce($1, {time_first}), $2)
   AND (n.created_at, n.run_id) < ({failures_end}, $4) AND ($6 IS NULL OR r.project_id = $6)
   AND (SELECT t.run_id FROM {ops}.run_lookup t WHERE t.kind = 'retry_of' AND t.value = n.run_id) IS NULL
   AND (r.lane <> 'sync' OR (SELECT d.run_id FROM {sync}.run_metadata d
                              WHERE d.feed = substr(r.concurrency_key, 6) AND d.state = 'completed'
                                -- A refused retry has no sync of its own: the sync that it was to continue counts.
                                AND d.started_at > coalesce((SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.run_id),
                                                            (SELECT m.started_at FROM {sync}.run_metadata m
                                                              WHERE m.ops_run_id = r.retry_of), r.started_at)
                              LIMIT 1) IS NULL)
 ORDER BY n.created_at DESC, n.run_id DESC LIMIT $5

-- name: run_failures_end
-- The failed run at position $5: the end of the range that one call reads.
SELECT n.created_at, n.run_id FROM {ops}.unsuccessful_runs n
 WHERE n.status = 'failed' AND (n.created_at, n.run_id) >= (coalesce($1, {time_first}), $2)
   AND (n.created_at, n.run_id) < ({failures_end}, $4)
 ORDER BY n.created_at DESC, n.run_id DESC LIMIT 1 OFFSET $5

-- name: run_list_held
-- There are only as many held runs as workers can hold: reads all of them by the index of held runs, and sorts.
WITH held AS MATERIALIZED (
    SELECT h.run_id FROM {ops}.runs h
     WHERE h.claimed_by >= '' AND h.finished_at IS NULL AND h.status IN ('claimed', 'running'))
SELECT {run_columns}
  FROM held h JOIN {ops}.runs r ON r.run_id = h.run_id JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE {run_filter}
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_queued
-- While few runs are queued, reads all of them by the indexes of queued runs, and sorts.
WITH waiting AS MATERIALIZED ({queued_run_ids})
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE {run_filter}
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_waiting
-- Queued runs, the oldest first: reads all of them by the indexes of queued runs, and sorts.
WITH waiting AS MATERIALIZED ({queued_run_ids})
SELECT {run_columns}
  FROM waiting w JOIN {ops}.runs r ON r.run_id = w.run_id JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 WHERE ((r.created_at, r.run_id) > (coalesce((SELECT c.created_at FROM {ops}.runs c WHERE c.run_id = $2), $1,
                                              {time_first}), $2)) IS TRUE
   AND (CAST($3 AS text) IS NULL OR r.project_id = $3)
 ORDER BY r.created_at, r.run_id LIMIT $4

-- name: run_list_env (postgres)
-- A page for each environment in $20, merged. PostgreSQL finds runs by their first event, which never changes, whereas
-- every claim and every finish writes all indexes of a run again. Each event looks up its run by itself (OFFSET 0): a
-- merge would read all runs for an environment with few. Environment, time and id are one range here, which only the
-- index runs_of_env can answer.
-- Differs: SQLite has no LATERAL, and PostgreSQL would compare the whole table with a subquery in the join condition.
-- SQLite writes an index of runs only if its columns change.
SELECT {run_columns}
  FROM unnest($20::text[]) AS v(value)
 CROSS JOIN LATERAL (
       SELECT r.* FROM {ops}.run_steps q
        CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
        WHERE q.env_id IS NOT NULL AND (q.env_id, q.created_at) >= (v.value, {list_start})
          AND (q.env_id, q.created_at, q.run_id) < (v.value, {list_end}, $19) AND q.seq = 1 AND {run_filter}
        ORDER BY q.env_id DESC, q.created_at DESC, q.run_id DESC LIMIT $3) AS r
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_env (sqlite)
SELECT {run_columns}
  FROM json_each($20) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT r.run_id FROM {ops}.runs r
        WHERE r.env_id = v.value AND {list_window} AND {run_filter}
        ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3)
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_lookup (postgres)
-- A page for each value in $20, merged. On PostgreSQL each row of run_lookup looks up its run by itself (OFFSET 0): a
-- merge would read all runs for a value with few.
-- Differs: SQLite has no LATERAL, and PostgreSQL would compare the whole table with a subquery in the join condition.
SELECT {run_columns}
  FROM unnest($20::text[]) AS v(value)
 CROSS JOIN LATERAL (
       SELECT r.* FROM {ops}.run_lookup q
        CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
        WHERE q.kind = $21 AND q.value = v.value
          AND q.created_at >= {list_start} AND (q.created_at, q.run_id) < ({list_end}, $19)
          AND {run_filter}
        ORDER BY q.created_at DESC, q.run_id DESC LIMIT $3) AS r
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_lookup (sqlite)
SELECT {run_columns}
  FROM json_each($20) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT q.run_id FROM {ops}.run_lookup q CROSS JOIN {ops}.runs r ON r.run_id = q.run_id
        WHERE q.kind = $21 AND q.value = v.value
          AND q.created_at >= {list_start} AND (q.created_at, q.run_id) < ({list_end}, $19)
          AND {run_filter}
        ORDER BY q.created_at DESC, q.run_id DESC LIMIT $3)
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_name (postgres)
-- A page for each name in $20, merged. The name of a graph is in its own table, the feed of a sync in run_lookup. $7
-- limits the search to one lane. On PostgreSQL each row looks up its run by itself (OFFSET 0): a merge would read all
-- runs for a name with few.
-- Differs: SQLite has no LATERAL, and PostgreSQL would compare the whole table with a subquery in the join condition.
SELECT {run_columns}
  FROM (SELECT p.run_id
          FROM unnest($20::text[]) AS v(value)
         CROSS JOIN LATERAL (
               (SELECT g.created_at, g.run_id FROM {ops}.graphs g
                 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = g.run_id OFFSET 0) r
                 WHERE ($7 IS NULL OR $7 = 'graph')
                   AND g.name = v.value COLLATE "C"
                   AND g.created_at >= {list_start} AND (g.created_at, g.run_id) < ({list_end}, $19)
                   AND {run_filter}
                 ORDER BY g.created_at DESC, g.run_id DESC LIMIT $3)
                UNION ALL
               (SELECT q.created_at, q.run_id FROM {ops}.run_lookup q
                 CROSS JOIN LATERAL (SELECT * FROM {ops}.runs o WHERE o.run_id = q.run_id OFFSET 0) r
                 WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'feed'
                   AND q.value = 'feed:' || v.value
                   AND q.created_at >= {list_start} AND (q.created_at, q.run_id) < ({list_end}, $19)
                   AND {run_filter}
                 ORDER BY q.created_at DESC, q.run_id DESC LIMIT $3)) AS p
         ORDER BY p.created_at DESC, p.run_id DESC LIMIT $3) AS f
  JOIN {ops}.runs r ON r.run_id = f.run_id
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_list_name (sqlite)
SELECT {run_columns}
  FROM json_each($20) v
  JOIN {ops}.runs r ON r.run_id IN (
       SELECT a.run_id FROM (
              SELECT g.run_id FROM {ops}.graphs g CROSS JOIN {ops}.runs r ON r.run_id = g.run_id
               WHERE ($7 IS NULL OR $7 = 'graph')
                 AND g.name = v.value
                 AND g.created_at >= {list_start} AND (g.created_at, g.run_id) < ({list_end}, $19)
                 AND {run_filter}
               ORDER BY g.created_at DESC, g.run_id DESC LIMIT $3) a
       UNION ALL
       SELECT b.run_id FROM (
              SELECT q.run_id FROM {ops}.run_lookup q CROSS JOIN {ops}.runs r ON r.run_id = q.run_id
               WHERE ($7 IS NULL OR $7 = 'sync') AND q.kind = 'feed'
                 AND q.value = 'feed:' || v.value
                 AND q.created_at >= {list_start} AND (q.created_at, q.run_id) < ({list_end}, $19)
                 AND {run_filter}
               ORDER BY q.created_at DESC, q.run_id DESC LIMIT $3) b)
  JOIN {ops}.label_sets s ON s.label_set_id = r.label_set_id
 ORDER BY r.created_at DESC, r.run_id DESC LIMIT $3

-- name: run_queued_count
-- Counts the queued runs, up to $1 for each gate.
SELECT count(*) AS value FROM (
    SELECT 1 AS one FROM (SELECT o.run_id FROM {ops}.runs o WHERE o.gate = 'open' LIMIT $1) opened
    UNION ALL SELECT 1 FROM (SELECT k.run_id FROM {ops}.runs k WHERE k.gate = 'key' LIMIT $1) keyed
    UNION ALL SELECT 1 FROM (SELECT t.run_id FROM {ops}.runs t
                              WHERE t.gate = 'time' AND t.attention_at IS NOT NULL LIMIT $1) timed) queued

-- name: run_lookup_count
-- Counts the runs with a value, up to $3.
SELECT count(*) AS value
  FROM (SELECT 1 AS one FROM {ops}.run_lookup q WHERE q.kind = $1 AND q.value = $2 LIMIT $3) counted

-- name: run_lookup_values
-- The values of a kind in a range, each found by one step in the index, however many runs have it.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.value FROM {ops}.run_lookup a WHERE a.kind = $4 AND a.value >= $1 AND a.value < $2
             ORDER BY a.value LIMIT 1)
    UNION ALL
    SELECT (SELECT b.value FROM {ops}.run_lookup b WHERE b.kind = $4 AND b.value > p.value AND b.value < $2
             ORDER BY b.value LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3

-- name: run_graphs (postgres)
-- The names of graphs in a range, each found by one step in the index, however many graphs have it.
-- Differs: byte order is a collation on PostgreSQL and the default on SQLite.
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.name FROM {ops}.graphs a WHERE a.name >= $1 COLLATE "C" AND a.name < $2 COLLATE "C"
             ORDER BY a.name COLLATE "C" LIMIT 1)
    UNION ALL
    SELECT (SELECT b.name FROM {ops}.graphs b WHERE b.name > p.value COLLATE "C" AND b.name < $2 COLLATE "C"
             ORDER BY b.name COLLATE "C" LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3

-- name: run_graphs (sqlite)
WITH RECURSIVE spelled(value) AS (
    SELECT (SELECT a.name FROM {ops}.graphs a WHERE a.name >= $1 AND a.name < $2
             ORDER BY a.name LIMIT 1)
    UNION ALL
    SELECT (SELECT b.name FROM {ops}.graphs b WHERE b.name > p.value AND b.name < $2
             ORDER BY b.name LIMIT 1)
      FROM spelled p WHERE p.value IS NOT NULL)
SELECT value FROM spelled WHERE value IS NOT NULL LIMIT $3
