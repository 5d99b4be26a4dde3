-- Differs: lists of words are arrays.
SELECT count(*) FILTER (WHERE NOT draining) AS alive,
       count(*) FILTER (WHERE NOT draining AND $1::text[] <@ labels) AS fitting,
       count(*) FILTER (WHERE draining AND $1::text[] <@ labels) AS draining
  FROM {ops}.workers WHERE ended_at IS NULL AND beat_at > $2
