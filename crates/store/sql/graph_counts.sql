SELECT code, reused_from IS NOT NULL AS reused, count(*) AS jobs, max(version) AS version
  FROM {ops}.jobs WHERE run_id = $1 GROUP BY code, reused_from IS NOT NULL
