-- What happens again while it lasts counts on the same alert. `sent_at` is emptied where people are to hear of it
-- again.
INSERT INTO {ops}.alerts AS a (kind, subject, project_id, feed, run_id, message, created_at, last_at, times,
                               resolved_at)
VALUES ($1, $2,
        coalesce($3, (SELECT f.project_id FROM {ops}.feeds f WHERE f.feed = $4),
                 (SELECT r.project_id FROM {ops}.runs r WHERE r.run_id = $5)),
        $4, $5, $6, coalesce($7, {now}), coalesce($7, {now}), $8, $10)
ON CONFLICT (kind, subject) WHERE resolved_at IS NULL AND subject <> ''
DO UPDATE SET run_id = coalesce(excluded.run_id, a.run_id), message = excluded.message, last_at = excluded.last_at,
              times = a.times + CAST($9 AS integer),
              sent_at = CASE WHEN CAST($9 AS integer) > 0 THEN NULL ELSE a.sent_at END
