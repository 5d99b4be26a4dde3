-- Differs: how rows are read out of JSON.
-- What came on top meanwhile stays, and is looked at again.
DELETE FROM {ops}.job_changes AS c USING jsonb_to_recordset($1) AS u (subject text, version bigint)
 WHERE c.subject = u.subject AND c.version = u.version
