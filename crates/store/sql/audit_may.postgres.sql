-- Differs: SQLite has no roles.
SELECT has_table_privilege('{ops}.audit', 'INSERT') AS value
