SELECT flag, scope, note, since, until_at, set_by, source FROM {ops}.flags ORDER BY scope, flag
