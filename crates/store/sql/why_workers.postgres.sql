-- Differs: lists of words are arrays.
SELECT count(*) AS alive, count(*) FILTER (WHERE $1::text[] <@ labels) AS fitting
  FROM {ops}.workers WHERE ended_at IS NULL AND beat_at > $2
