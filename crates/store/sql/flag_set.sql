-- What a probe finds never changes what a person set, unless that is over.
INSERT INTO {ops}.flags AS f (flag, scope, note, since, until_at, set_by, source) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (flag, scope) DO UPDATE SET note = excluded.note, until_at = excluded.until_at, set_by = excluded.set_by,
       source = excluded.source, since = CASE WHEN f.until_at <= excluded.since THEN excluded.since ELSE f.since END
 WHERE excluded.source = 'manual' OR f.source = 'probe' OR f.until_at <= excluded.since
