-- Differs: several processes may tell people at once; the pace of a target is kept by one of them at a time.
SELECT CAST(pg_advisory_xact_lock(hashtext('tidemill alerts ' || $1)) AS text) AS value
