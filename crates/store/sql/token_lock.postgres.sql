-- Differs: several servers may start at once, and only one of them makes the first token.
LOCK TABLE {ops}.tokens IN SHARE ROW EXCLUSIVE MODE
