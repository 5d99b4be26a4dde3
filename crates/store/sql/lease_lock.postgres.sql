-- Differs: SQLite has one writer at a time, and needs no lock on a row.
-- The strongest lock: it waits for every step that its holder has begun.
SELECT site, holder, name, epoch, until_at, since, version FROM {ops}.controller_leases WHERE site = $1 FOR UPDATE
