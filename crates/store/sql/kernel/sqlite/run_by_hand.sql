-- Completes plain SQL statements that insert or change a run, and refuses inconsistent ones.

-- name: run_by_hand_triggers
-- Fills in the columns that a plain SQL statement left out when it changed the status of a run. The verbs set all of
-- them, and never fire this trigger.
DROP TRIGGER IF EXISTS run_c_by_hand;
CREATE TRIGGER run_c_by_hand AFTER UPDATE OF status ON runs
WHEN OLD.status <> NEW.status AND (
    NEW.gate IS NOT NULL
    OR (NEW.status IN ('claimed', 'running') AND NEW.lease_until IS NULL)
    OR (NEW.status IN ({run_terminal}) AND (NEW.end_cause IS NULL OR NEW.finished_at IS NULL)))
BEGIN
    UPDATE runs SET
        gate = NULL,
        epoch = iif(c.claims, max(NEW.epoch, 1), NEW.epoch),
        started_at = iif(c.claims, coalesce(NEW.started_at, c.now), NEW.started_at),
        -- A plain SQL statement promises no heartbeats; the process of a registered worker sends them.
        lease_secs = iif(c.claims AND NEW.worker_id IS NOT NULL,
                         coalesce(NEW.lease_secs, {lease_secs}), NEW.lease_secs),
        lease_until = iif(c.claims, c.now + {lease_secs} * 1000000, NEW.lease_until),
        finished_at = iif(c.ends, coalesce(NEW.finished_at, c.now), NEW.finished_at),
        end_cause = iif(c.ends, coalesce(NEW.end_cause, 'statement'), NEW.end_cause),
        input = iif(c.ends AND NEW.metadata <> OLD.metadata, coalesce(OLD.input, OLD.metadata), NEW.input),
        updated_at = iif(NEW.updated_at = OLD.updated_at, c.now, NEW.updated_at)
    FROM (SELECT NEW.status IN ('claimed', 'running') AND NEW.lease_until IS NULL AS claims,
                 NEW.status IN ({run_terminal}) AS ends,
                 CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now) c
    WHERE run_id = NEW.run_id;
    -- The controller ends the jobs of the graph when it reads this change.
    INSERT INTO job_changes (subject, version)
    SELECT NEW.run_id, 1 WHERE NEW.lane = 'graph' AND NEW.status IN ({run_terminal})
    ON CONFLICT (subject) DO UPDATE SET version = version + 1;
END;

-- Checks a plain INSERT for rules that the table cannot check; run_by_hand gives it the label set without labels.
DROP TRIGGER IF EXISTS run_by_hand_whole;
CREATE TRIGGER run_by_hand_whole BEFORE INSERT ON runs
WHEN NEW.status <> 'queued'
     AND (NEW.gate IS NOT NULL OR (NEW.status IN ({run_terminal}) AND NEW.finished_at IS NULL))
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: run_has_a_gate_while_queued')
     WHERE NEW.gate IS NOT NULL;
    SELECT RAISE(ABORT, 'CHECK constraint failed: run_finished_iff_final');
END;

DROP TRIGGER IF EXISTS run_by_hand;
CREATE TRIGGER run_by_hand AFTER INSERT ON runs
WHEN NEW.label_set_id = 0
BEGIN
    SELECT RAISE(ABORT, 'TM002: the project has no such environment')
     WHERE NOT EXISTS (SELECT 1 FROM environments e
                        WHERE e.env_id = NEW.env_id AND e.project_id = NEW.project_id);
    INSERT INTO label_sets (project_id, labels) VALUES (NEW.project_id, '[]') ON CONFLICT DO NOTHING;
    -- The run takes its concurrency key, or waits in line for it. A run that is not available yet does neither.
    INSERT INTO concurrency_keys (project_id, concurrency_key, head_run_id)
    SELECT NEW.project_id, NEW.concurrency_key, NEW.run_id
     WHERE NEW.concurrency_key IS NOT NULL AND NEW.status NOT IN ({run_terminal}) AND NEW.gate IS NOT 'time'
       AND coalesce(NEW.available_at, 0) <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
    ON CONFLICT DO NOTHING;
    SELECT RAISE(ABORT, 'TM008: another run has the concurrency key')
     WHERE NEW.concurrency_key IS NOT NULL AND NEW.status IN ('claimed', 'running')
       AND NEW.run_id <> (SELECT k.head_run_id FROM concurrency_keys k
                           WHERE k.project_id = NEW.project_id AND k.concurrency_key = NEW.concurrency_key);
    UPDATE runs SET label_set_id = (SELECT s.label_set_id FROM label_sets s
                                 WHERE s.project_id = NEW.project_id AND s.labels = '[]'),
                    gate = CASE WHEN NEW.gate = 'open' AND NEW.available_at
                                     > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
                                    THEN 'time'
                                WHEN NEW.gate = 'open' AND NEW.concurrency_key IS NOT NULL
                                     AND NEW.run_id <> (SELECT k.head_run_id FROM concurrency_keys k
                                                         WHERE k.project_id = NEW.project_id
                                                           AND k.concurrency_key = NEW.concurrency_key)
                                    THEN 'key'
                                ELSE NEW.gate END
     WHERE run_id = NEW.run_id;
END;

-- Keeps gates and concurrency keys consistent when a statement changes either, as change_gate does on PostgreSQL.
DROP TRIGGER IF EXISTS run_key_is_held;
CREATE TRIGGER run_key_is_held BEFORE UPDATE OF concurrency_key ON runs
WHEN OLD.concurrency_key IS NOT NEW.concurrency_key AND (OLD.gate IS NULL OR OLD.lane <> 'ops')
BEGIN
    SELECT RAISE(ABORT, 'TM008: the concurrency key of a run cannot change while a worker has it');
END;

DROP TRIGGER IF EXISTS run_gate_waits;
CREATE TRIGGER run_gate_waits BEFORE UPDATE OF gate ON runs
WHEN NEW.gate = 'open' AND OLD.gate IN ('key', 'time') AND NEW.concurrency_key IS NOT NULL
     AND OLD.concurrency_key IS NEW.concurrency_key
     AND NEW.run_id IS NOT (SELECT k.head_run_id FROM concurrency_keys k
                             WHERE k.project_id = NEW.project_id AND k.concurrency_key = NEW.concurrency_key)
BEGIN
    SELECT RAISE(ABORT, 'TM008: the run waits for its concurrency key, which another run has');
END;

DROP TRIGGER IF EXISTS run_changes_key;
CREATE TRIGGER run_changes_key AFTER UPDATE OF concurrency_key ON runs
WHEN OLD.concurrency_key IS NOT NEW.concurrency_key
BEGIN
    UPDATE concurrency_keys SET head_run_id = (
        SELECT r.run_id FROM runs r
         WHERE r.project_id = OLD.project_id AND r.concurrency_key = OLD.concurrency_key AND r.gate = 'key'
         ORDER BY r.priority DESC, r.ready_at, r.run_id LIMIT 1)
     WHERE project_id = OLD.project_id AND concurrency_key = OLD.concurrency_key AND head_run_id = OLD.run_id;
    UPDATE runs SET gate = 'open'
     WHERE gate = 'key'
       AND run_id = (SELECT k.head_run_id FROM concurrency_keys k
                      WHERE k.project_id = OLD.project_id AND k.concurrency_key = OLD.concurrency_key);
    DELETE FROM concurrency_keys
     WHERE project_id = OLD.project_id AND concurrency_key = OLD.concurrency_key AND head_run_id IS NULL;
    INSERT INTO concurrency_keys (project_id, concurrency_key, head_run_id)
    SELECT NEW.project_id, NEW.concurrency_key, NEW.run_id
     WHERE NEW.concurrency_key IS NOT NULL AND NEW.gate <> 'time'
    ON CONFLICT DO NOTHING;
    UPDATE runs SET gate = CASE WHEN NEW.concurrency_key IS NULL
                                     OR NEW.run_id = (SELECT k.head_run_id FROM concurrency_keys k
                                                       WHERE k.project_id = NEW.project_id
                                                         AND k.concurrency_key = NEW.concurrency_key)
                                THEN 'open' ELSE 'key' END
     WHERE run_id = NEW.run_id AND gate IN ('open', 'key');
END;
