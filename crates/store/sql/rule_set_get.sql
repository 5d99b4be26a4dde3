SELECT rules FROM {ops}.rule_sets WHERE version = $1
