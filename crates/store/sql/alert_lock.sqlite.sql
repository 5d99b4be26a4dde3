-- Differs: this is the only writer.
SELECT $1 AS value
