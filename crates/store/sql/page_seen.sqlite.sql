-- Differs: a list of words is JSON here, and an array there. $4 is what the names of records without an id begin with.
WITH named AS (
    SELECT p.pass, s.value AS id, substr(s.value, 1, length($4)) = $4 AS nameless
      FROM {ops}.pages p, json_each(p.stone_ids) s
     WHERE p.run_id = $1 AND p.partition_id = $2)
SELECT count(DISTINCT id) FILTER (WHERE NOT nameless) AS seen,
       count(DISTINCT id) FILTER (WHERE NOT nameless AND pass = $3) AS seen_in_pass,
       count(*) FILTER (WHERE nameless AND pass = $3) AS nameless,
       (SELECT coalesce(sum(p.fetched), 0) FROM {ops}.pages p
         WHERE p.run_id = $1 AND p.partition_id = $2 AND p.pass = $3) AS places
  FROM named
