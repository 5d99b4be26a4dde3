SELECT coalesce(sum(CASE WHEN kind = 'RUNJOB' THEN 1 ELSE 0 END), 0) AS running,
       coalesce(sum(CASE WHEN kind = 'CANCELJOB' THEN 1 ELSE 0 END), 0) AS stopping FROM {ops}.tasks WHERE active
