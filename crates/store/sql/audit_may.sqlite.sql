-- Differs: there is nobody who could open the file and not write this.
SELECT 1 AS value
