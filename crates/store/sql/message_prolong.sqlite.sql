-- Differs: a list of words is JSON here, and an array there. Written anew only when half
-- of the time is over, and not with every look.
UPDATE {ops}.messages SET expires_at = $4
 WHERE queue = $1 AND grp IN (SELECT value FROM json_each($2)) AND state = 'live' AND expires_at < $3
