INSERT INTO {ops}.audit (at, who, token_id, role, action, subject, project_id, detail, source)
VALUES (coalesce($1, {now}), $2, $3, $4, $5, $6, $7, $8, $9)
