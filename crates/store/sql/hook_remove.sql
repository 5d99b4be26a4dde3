DELETE FROM {ops}.hooks WHERE hook = $1 AND (CAST($2 AS text) IS NULL OR project_id = $2)
