-- Runs are found by the beginning of their names: graphs by this index, and syncs by their feeds, which have one.
-- A name has a bound from here on; what is longer would not fit into an index.
UPDATE {ops}.graphs SET name = left(name, 128) WHERE char_length(name) > 128;
-- Differs: a prefix is a range only where texts are compared byte by byte, which SQLite does unless told otherwise.
CREATE INDEX graphs_of_name ON {ops}.graphs (name COLLATE "C", run_id) WHERE name IS NOT NULL;
