-- Differs: lists of words are JSON texts.
SELECT coalesce(sum(NOT w.draining), 0) AS alive, coalesce(sum(w.fits AND NOT w.draining), 0) AS fitting,
       coalesce(sum(w.fits AND w.draining), 0) AS draining
  FROM (SELECT l.draining, NOT EXISTS (
                   SELECT 1 FROM json_each($1) need
                    WHERE need.value NOT IN (SELECT offer.value FROM json_each(l.labels) offer)) AS fits
          FROM {ops}.workers l WHERE l.ended_at IS NULL AND l.beat_at > $2) w
