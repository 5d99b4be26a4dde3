SELECT env_id AS value FROM {ops}.environments
 WHERE (CAST($1 AS text) IS NULL OR project_id = $1) AND (CAST($2 AS text) IS NULL OR env_type = $2)
 ORDER BY env_id LIMIT $3
