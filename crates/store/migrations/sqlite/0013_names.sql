-- Runs are found by the beginning of their names: graphs by this index, and syncs by their feeds, which have one.
-- A name has a bound from here on; what is longer would not fit into an index of PostgreSQL.
UPDATE graphs SET name = substr(name, 1, 128) WHERE length(name) > 128;
CREATE INDEX graphs_of_name ON graphs (name, run_id) WHERE name IS NOT NULL;
