-- Differs: how rows are read out of JSON.
-- What came on top meanwhile stays, and is looked at again.
DELETE FROM {ops}.job_changes
 WHERE (subject, version) IN (SELECT json_extract(value, '$.subject'), json_extract(value, '$.version')
                                FROM json_each($1))
