-- Differs: there is one writer at a time anyway.
SELECT 1
