INSERT INTO {ops}.rule_sets (digest, rules, created_at) VALUES ($1, $2, coalesce($3, {now}))
ON CONFLICT (digest) DO NOTHING
