-- Concurrency keys. Only the head of a key has an open gate; the other runs of the key wait in line behind it, where
-- no claim reads them. A key always has a head: there is no locked run to skip, which is why PostgreSQL has keys
-- without a head and a sweep for them.

-- name: key_enter
-- Makes the run the head of its key if the key is free, and returns the head.
INSERT INTO concurrency_keys AS k (project_id, concurrency_key, head_run_id)
VALUES ($1, $2, $3)
ON CONFLICT (project_id, concurrency_key)
DO UPDATE SET head_run_id = coalesce(k.head_run_id, excluded.head_run_id)
RETURNING head_run_id

-- name: key_displace_head
-- A head that is not claimed yet gives way to a run of higher priority, and to one of the same priority that was
-- requested earlier. The successor of a lost run takes its old position. Changes no row if the head stays.
UPDATE runs SET gate = iif(gate = 'open', 'key', gate)
 WHERE run_id = $1 AND ((gate IN ('open', 'time') AND priority < $2)
    OR (gate = 'open' AND priority = $2 AND ready_at > $3))

-- name: key_set_head
UPDATE concurrency_keys SET head_run_id = $3 WHERE project_id = $1 AND concurrency_key = $2

-- name: gate_ready_at
-- The position of a run in the line of its key.
SELECT ready_at FROM runs WHERE run_id = $1

-- name: gate_due
SELECT run_id, concurrency_key IS NOT NULL AS has_key FROM runs
 WHERE gate = 'time' AND available_at <= $1 ORDER BY available_at LIMIT +$2

-- name: gate_set
UPDATE runs SET gate = $2, updated_at = $3 WHERE run_id IN (SELECT value FROM json_each($1))

-- name: key_repair_remove
-- Removes keys whose head is not a live run of the key. Only statements that bypass the triggers leave them behind.
DELETE FROM concurrency_keys WHERE (project_id, concurrency_key) IN (
    SELECT k.project_id, k.concurrency_key FROM concurrency_keys k WHERE NOT EXISTS (
        SELECT 1 FROM runs r WHERE r.run_id = k.head_run_id AND r.status NOT IN ('success', 'failed', 'cancelled')
           AND r.project_id = k.project_id AND r.concurrency_key = k.concurrency_key) LIMIT +$1)

-- name: key_repair_insert
-- Makes the first run in line the head of a key that has no row.
INSERT INTO concurrency_keys (project_id, concurrency_key, head_run_id)
SELECT w.project_id, w.concurrency_key, w.run_id FROM (
    SELECT r.project_id, r.concurrency_key, r.run_id, row_number() OVER (
           PARTITION BY r.project_id, r.concurrency_key
           ORDER BY r.priority DESC, r.ready_at, r.run_id) AS position
      FROM runs r WHERE r.gate = 'key' AND r.concurrency_key IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM concurrency_keys k WHERE k.project_id = r.project_id
                          AND k.concurrency_key = r.concurrency_key)) w
 WHERE w.position = 1 LIMIT +$1

-- name: key_repair_open
UPDATE runs SET gate = 'open' WHERE gate = 'key' AND concurrency_key IS NOT NULL
   AND run_id IN (SELECT k.head_run_id FROM concurrency_keys k)

-- name: concurrency_keys_triggers
-- Passes the key of an ended run to the first run in line. Only a trigger does this, so that it happens for plain SQL
-- statements too.
DROP TRIGGER IF EXISTS run_releases_key;
CREATE TRIGGER run_releases_key AFTER UPDATE OF status ON runs
WHEN NEW.concurrency_key IS NOT NULL AND NEW.status IN ({run_terminal}) AND OLD.status NOT IN ({run_terminal})
BEGIN
    UPDATE concurrency_keys SET head_run_id = (
        SELECT r.run_id FROM runs r
         WHERE r.project_id = NEW.project_id AND r.concurrency_key = NEW.concurrency_key AND r.gate = 'key'
         ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1)
     WHERE project_id = NEW.project_id AND concurrency_key = NEW.concurrency_key AND head_run_id = NEW.run_id;
    UPDATE runs SET gate = 'open'
     WHERE gate = 'key'
       AND run_id = (SELECT k.head_run_id FROM concurrency_keys k
                      WHERE k.project_id = NEW.project_id AND k.concurrency_key = NEW.concurrency_key);
    DELETE FROM concurrency_keys
     WHERE project_id = NEW.project_id AND concurrency_key = NEW.concurrency_key AND head_run_id IS NULL;
END;
