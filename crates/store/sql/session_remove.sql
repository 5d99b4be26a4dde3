DELETE FROM {ops}.sessions WHERE hash = $1
