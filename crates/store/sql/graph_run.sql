-- No worker claims a graph: its gate is opened by nobody.
UPDATE {ops}.runs SET lane = 'graph', gate = 'key' WHERE run_id = $1 AND status = 'queued'
