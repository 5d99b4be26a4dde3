SELECT CAST(version AS bigint) AS value FROM {ops}.rule_sets WHERE digest = $1
