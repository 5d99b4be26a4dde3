SELECT subject, version FROM {ops}.job_changes ORDER BY subject LIMIT $1
