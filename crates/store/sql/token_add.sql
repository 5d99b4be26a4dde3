-- No row where the project does not exist. Asked again after a lost answer, it is the same row.
INSERT INTO {ops}.tokens (token_id, name, hash, role, project_id, created_at, created_by, expires_at)
SELECT $1, $2, $3, $4, $5, $6, $7, $8
 WHERE $5 IS NULL OR EXISTS (SELECT 1 FROM {ops}.projects p WHERE p.project_id = $5)
    ON CONFLICT (token_id) DO UPDATE SET hash = excluded.hash
