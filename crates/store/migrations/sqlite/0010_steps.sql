-- Differs: SQLite enters a run in an index anew only when a column of that index changes, and reads checks and
-- conditions once, when it opens the file. There is nothing to change.
SELECT 1;
