SELECT flag, scope, note, since, until_at, set_by FROM {ops}.flags ORDER BY scope, flag
