-- Changes that the database refuses from every caller, and the events of jobs.
--
-- Differs: a trigger of SQLite cannot change the row that is being written, so the triggers in run_by_hand.sql complete
-- a plain SQL statement after it. Triggers of one event have no order: each of them is correct in any order. Messages
-- are fixed texts without the id of the run, because SQLite before 3.47 could not open a file with any other.

-- name: guards_triggers
-- An ended run never changes. Only a plain SQL statement writes an incomplete end, which run_c_by_hand completes.
DROP TRIGGER IF EXISTS run_a_final;
CREATE TRIGGER run_a_final BEFORE UPDATE ON runs
WHEN OLD.status IN ({run_terminal})
     AND OLD.gate IS NULL AND OLD.finished_at IS NOT NULL AND OLD.label_set_id <> 0
     AND (OLD.end_cause IS NOT NULL OR NEW.end_cause IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'TM008: the run has ended; an ended run cannot change');
END;

DROP TRIGGER IF EXISTS run_b_transition;
CREATE TRIGGER run_b_transition BEFORE UPDATE OF status ON runs
WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (VALUES {run_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the run cannot change from its current status to the new one');
END;

-- The id, project, environment and creation time of a run never change.
DROP TRIGGER IF EXISTS run_moves;
CREATE TRIGGER run_moves BEFORE UPDATE OF run_id, project_id, env_id ON runs
WHEN NEW.run_id <> OLD.run_id OR NEW.project_id <> OLD.project_id OR NEW.env_id <> OLD.env_id
BEGIN
    SELECT RAISE(ABORT, 'TM008: a run cannot change its id, project or environment');
END;

DROP TRIGGER IF EXISTS run_is_made_once;
CREATE TRIGGER run_is_made_once BEFORE UPDATE OF created_at ON runs
WHEN NEW.created_at <> OLD.created_at
BEGIN
    SELECT RAISE(ABORT, 'TM008: a run cannot change created_at');
END;

DROP TRIGGER IF EXISTS run_d_live;
CREATE TRIGGER run_d_live BEFORE DELETE ON runs
WHEN OLD.status NOT IN ({run_terminal})
BEGIN
    SELECT RAISE(ABORT, 'TM008: only a run that has ended can be deleted');
END;

-- The part of run_has_a_gate_while_queued that the table cannot check.
DROP TRIGGER IF EXISTS run_c_gate;
CREATE TRIGGER run_c_gate BEFORE UPDATE OF gate ON runs
WHEN NEW.gate IS NOT NULL AND OLD.status IN ('claimed', 'running') AND NEW.status = OLD.status
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: run_has_a_gate_while_queued');
END;

DROP TRIGGER IF EXISTS run_event_is_kept;
CREATE TRIGGER run_event_is_kept BEFORE UPDATE ON run_events
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are append-only');
END;

DROP TRIGGER IF EXISTS run_event_is_not_deleted;
CREATE TRIGGER run_event_is_not_deleted BEFORE DELETE ON run_events
WHEN EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.run_id)
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are append-only');
END;

DROP TRIGGER IF EXISTS run_event_has_a_run;
CREATE TRIGGER run_event_has_a_run BEFORE INSERT ON run_events
WHEN NOT EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.run_id)
BEGIN
    SELECT RAISE(ABORT, 'TM003: the run does not exist');
END;

-- The numbers of the events of a removed run are taken until retention has removed these too.
DROP TRIGGER IF EXISTS run_id_has_no_events;
CREATE TRIGGER run_id_has_no_events BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM run_events WHERE run_id = NEW.run_id)
     AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.run_id)
BEGIN
    SELECT RAISE(ABORT, 'TM004: the run id is taken by a removed run, whose events are not removed yet');
END;

-- REPLACE deletes rows without firing the DELETE triggers.
DROP TRIGGER IF EXISTS run_event_is_not_replaced;
CREATE TRIGGER run_event_is_not_replaced BEFORE INSERT ON run_events
WHEN EXISTS (SELECT 1 FROM run_events WHERE run_id = NEW.run_id AND seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are append-only');
END;

-- Transitions of syncs.
DROP TRIGGER IF EXISTS sync_change;
CREATE TRIGGER sync_change BEFORE UPDATE OF state ON run_metadata
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {sync_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the sync cannot change from its current state to the new one');
END;

DROP TRIGGER IF EXISTS partition_change;
CREATE TRIGGER partition_change BEFORE UPDATE OF state ON partition_progress
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {partition_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the partition cannot change from its current state to the new one');
END;

DROP TRIGGER IF EXISTS worker_run_change;
CREATE TRIGGER worker_run_change BEFORE UPDATE OF status ON worker_runs
WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (VALUES {worker_run_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the worker run cannot change from its current status to the new one');
END;

-- Audit entries never change; sealing sets their seal number once. Retention empties whole seals, oldest first.
DROP TRIGGER IF EXISTS audit_change;
CREATE TRIGGER audit_change BEFORE UPDATE ON audit
WHEN OLD.seal_no IS NOT NULL OR NEW.seal_no IS NULL
     OR OLD.audit_id IS NOT NEW.audit_id OR OLD.at IS NOT NEW.at OR OLD.call_id IS NOT NEW.call_id
     OR OLD.who IS NOT NEW.who OR OLD.token_id IS NOT NEW.token_id OR OLD.role IS NOT NEW.role
     OR OLD.action IS NOT NEW.action OR OLD.subject IS NOT NEW.subject OR OLD.project_id IS NOT NEW.project_id
     OR OLD.outcome IS NOT NEW.outcome OR OLD.detail IS NOT NEW.detail OR OLD.source IS NOT NEW.source
BEGIN
    SELECT RAISE(ABORT, 'TM008: recorded entries cannot change');
END;

DROP TRIGGER IF EXISTS audit_delete;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_seals s WHERE s.seal_no = OLD.seal_no AND s.pruned_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'TM008: recorded entries cannot be removed');
END;

DROP TRIGGER IF EXISTS seal_change;
CREATE TRIGGER seal_change BEFORE UPDATE ON audit_seals
WHEN OLD.pruned_at IS NOT NULL OR NEW.pruned_at IS NULL OR NEW.entries <> '[]'
     OR OLD.seal_no IS NOT NEW.seal_no OR OLD.sealed_at IS NOT NEW.sealed_at OR OLD.previous IS NOT NEW.previous
     OR OLD.hash IS NOT NEW.hash OR OLD.newest_at IS NOT NEW.newest_at
     OR EXISTS (SELECT 1 FROM audit_seals s WHERE s.seal_no < OLD.seal_no AND s.pruned_at IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'TM008: seals of the audit log cannot change');
END;

DROP TRIGGER IF EXISTS seal_delete;
CREATE TRIGGER seal_delete BEFORE DELETE ON audit_seals
WHEN OLD.pruned_at IS NULL
     OR NOT EXISTS (SELECT 1 FROM audit_seals s WHERE s.seal_no > OLD.seal_no AND s.pruned_at IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'TM008: seals of the audit log cannot change');
END;

-- Transitions of jobs, and the events that record them.

DROP TRIGGER IF EXISTS job_change;
CREATE TRIGGER job_change BEFORE UPDATE OF code ON jobs
WHEN OLD.code <> NEW.code AND (OLD.code, NEW.code) NOT IN (VALUES {job_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the job cannot change from its current code to the new one');
END;

DROP TRIGGER IF EXISTS job_end;
CREATE TRIGGER job_end BEFORE UPDATE OF message, exit_code, task_id, ended_at, reused_from ON jobs
WHEN OLD.ended_at IS NOT NULL AND OLD.code = NEW.code
     AND (OLD.message IS NOT NEW.message OR OLD.exit_code IS NOT NEW.exit_code OR OLD.task_id IS NOT NEW.task_id
          OR OLD.ended_at IS NOT NEW.ended_at OR OLD.reused_from IS NOT NEW.reused_from)
BEGIN
    SELECT RAISE(ABORT, 'TM008: the job has ended and cannot change');
END;

DROP TRIGGER IF EXISTS job_changed;
CREATE TRIGGER job_changed AFTER UPDATE OF code ON jobs
WHEN OLD.code <> NEW.code
BEGIN
    INSERT INTO job_events (job_id, seq, from_code, to_code, message, at)
    VALUES (NEW.job_id, (SELECT coalesce(max(e.seq), 0) + 1 FROM job_events e WHERE e.job_id = NEW.job_id),
            OLD.code, NEW.code, NEW.message,
            -- A plain SQL statement may leave updated_at unchanged.
            CASE WHEN NEW.updated_at <> OLD.updated_at THEN NEW.updated_at
                 ELSE CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 END);
    -- A plain SQL statement made this change: the controller raises the version with each of its own, and must read
    -- this one.
    INSERT INTO job_changes (subject, version) SELECT NEW.job_id, 1 WHERE NEW.version = OLD.version
    ON CONFLICT (subject) DO UPDATE SET version = version + 1;
END;

DROP TRIGGER IF EXISTS job_record;
CREATE TRIGGER job_record BEFORE UPDATE ON job_events
BEGIN
    SELECT RAISE(ABORT, 'TM008: recorded entries cannot change');
END;
