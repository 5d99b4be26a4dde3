DELETE FROM {sync}.pricing_rules WHERE id = $1
