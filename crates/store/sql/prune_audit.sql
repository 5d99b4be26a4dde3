DELETE FROM {ops}.audit
 WHERE audit_id IN (SELECT a.audit_id FROM {ops}.audit a WHERE a.at < $1 ORDER BY a.at LIMIT $2)
