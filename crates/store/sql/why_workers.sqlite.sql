-- Differs: lists of words are JSON texts.
SELECT count(*) AS alive, coalesce(sum(NOT EXISTS (
           SELECT 1 FROM json_each($1) need
            WHERE need.value NOT IN (SELECT offer.value FROM json_each(w.labels) offer))), 0) AS fitting
  FROM {ops}.workers w WHERE w.ended_at IS NULL AND w.beat_at > $2
