WITH claimed AS (
    UPDATE floor SET status = 'claimed'
     WHERE id = ANY (ARRAY(SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT 100
                              FOR UPDATE SKIP LOCKED))
    RETURNING id)
SELECT array_agg(id)::text AS ids FROM claimed \gset
UPDATE floor SET status = 'done' WHERE id = ANY (:ids::bigint[]);
