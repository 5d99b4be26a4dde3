SELECT count(*) AS value FROM {sync}.diamonds d WHERE d.feed = $1 AND d.status = 'active'
