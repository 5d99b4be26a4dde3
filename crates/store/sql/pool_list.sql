SELECT p.name, p.size, coalesce((SELECT sum(j.weight) FROM {ops}.jobs j
                         WHERE (j.ended_at IS NULL OR j.stopping) AND j.pool = p.name
                           AND (j.stopping OR j.code {in} $1 {ni})), 0) AS used
  FROM {ops}.pools p ORDER BY p.name
