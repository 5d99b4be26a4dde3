-- Differs: SQLite reads a check once, when it opens the file. There is nothing to change.
SELECT 1;
