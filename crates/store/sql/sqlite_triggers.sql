-- What the database refuses, records and completes, whoever asks; the twin of 01_run_guards.sql to 04_run_events.sql.
-- Differs: a trigger here cannot change the row that is being written, so a plain statement is completed after it.
-- Triggers of one event have no order: each of these is right whichever comes first. A message is a fixed text,
-- without the run's id, because a SQLite older than 3.47 could not even open a file with any other.

-- What has ended does not change. Only a plain statement leaves an end half-written, and only for run_c_by_hand.
DROP TRIGGER IF EXISTS run_a_final;
CREATE TRIGGER run_a_final BEFORE UPDATE ON runs
WHEN OLD.status IN ({run_terminal})
     AND OLD.gate IS NULL AND OLD.finished_at IS NOT NULL AND OLD.shelf_id <> 0
     AND (OLD.end_cause IS NOT NULL OR NEW.end_cause IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'TM008: the run has ended, and what has ended does not change');
END;

DROP TRIGGER IF EXISTS run_b_arrow;
CREATE TRIGGER run_b_arrow BEFORE UPDATE OF status ON runs
WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (VALUES {run_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the run cannot go from its status to that one');
END;

-- A run stays what it is a run of.
DROP TRIGGER IF EXISTS run_moves;
CREATE TRIGGER run_moves BEFORE UPDATE OF run_id, project_id, env_id ON runs
WHEN NEW.run_id <> OLD.run_id OR NEW.project_id <> OLD.project_id OR NEW.env_id <> OLD.env_id
BEGIN
    SELECT RAISE(ABORT, 'TM008: a run keeps its id, its project and its environment');
END;

DROP TRIGGER IF EXISTS run_d_live;
CREATE TRIGGER run_d_live BEFORE DELETE ON runs
WHEN OLD.status NOT IN ({run_terminal})
BEGIN
    SELECT RAISE(ABORT, 'TM008: only a run that has ended can be deleted');
END;

-- The half of run_has_a_gate_while_queued that the table cannot check.
DROP TRIGGER IF EXISTS run_c_gate;
CREATE TRIGGER run_c_gate BEFORE UPDATE OF gate ON runs
WHEN NEW.gate IS NOT NULL AND OLD.status IN ('claimed', 'running') AND NEW.status = OLD.status
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: run_has_a_gate_while_queued');
END;

DROP TRIGGER IF EXISTS run_event_is_kept;
CREATE TRIGGER run_event_is_kept BEFORE UPDATE ON run_events
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are only ever appended');
END;

DROP TRIGGER IF EXISTS run_event_is_not_deleted;
CREATE TRIGGER run_event_is_not_deleted BEFORE DELETE ON run_events
WHEN EXISTS (SELECT 1 FROM runs WHERE run_id = OLD.run_id)
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are only ever appended');
END;

-- REPLACE deletes without a word to the triggers of DELETE.
DROP TRIGGER IF EXISTS run_event_is_not_replaced;
CREATE TRIGGER run_event_is_not_replaced BEFORE INSERT ON run_events
WHEN EXISTS (SELECT 1 FROM run_events WHERE run_id = NEW.run_id AND seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'TM008: events are only ever appended');
END;

-- A plain SQL statement may change a run too: fill in what it left out, so that nothing is left half-finished.
-- Our own verbs set all of this themselves, and never enter this.
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
        -- A statement promises no signs of life; the process of a registered worker gives them.
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
    -- The jobs of a graph go with it, as soon as the controller looks.
    INSERT INTO job_changes (subject, version)
    SELECT NEW.run_id, 1 WHERE NEW.lane = 'graph' AND NEW.status IN ({run_terminal})
    ON CONFLICT (subject) DO UPDATE SET version = version + 1;
END;

-- A plain INSERT is held to what the table cannot check, and gets the shelf of runs that need no label.
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
WHEN NEW.shelf_id = 0
BEGIN
    SELECT RAISE(ABORT, 'TM002: the project has no such environment')
     WHERE NOT EXISTS (SELECT 1 FROM environments e
                        WHERE e.env_id = NEW.env_id AND e.project_id = NEW.project_id);
    INSERT INTO shelves (project_id, labels) VALUES (NEW.project_id, '[]') ON CONFLICT DO NOTHING;
    -- It takes its concurrency key, or waits in line for it; a run for later does neither yet.
    INSERT INTO concurrency_keys (project_id, concurrency_key, head_run_id)
    SELECT NEW.project_id, NEW.concurrency_key, NEW.run_id
     WHERE NEW.concurrency_key IS NOT NULL AND NEW.status NOT IN ({run_terminal}) AND NEW.gate IS NOT 'time'
       AND coalesce(NEW.available_at, 0) <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
    ON CONFLICT DO NOTHING;
    SELECT RAISE(ABORT, 'TM008: another run has the concurrency key')
     WHERE NEW.concurrency_key IS NOT NULL AND NEW.status IN ('claimed', 'running')
       AND NEW.run_id <> (SELECT k.head_run_id FROM concurrency_keys k
                           WHERE k.project_id = NEW.project_id AND k.concurrency_key = NEW.concurrency_key);
    UPDATE runs SET shelf_id = (SELECT s.shelf_id FROM shelves s
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

-- The twin of change_gate in 02_run_by_hand.sql: gates and keys stay in step, whoever changes either.
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

-- Passes the key of a run that has ended on to the first in line. Here only, so that a plain statement does it too.
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

-- The record of changes. It is written by triggers, so that a plain SQL statement is on record too.
DROP TRIGGER IF EXISTS run_queued;
CREATE TRIGGER run_queued AFTER INSERT ON runs
BEGIN
    INSERT INTO run_events (run_id, seq, kind, level, message, payload, created_at)
    VALUES (NEW.run_id, 1, 'transition', 'info', 'Run queued',
            CASE WHEN NEW.retry_of IS NULL THEN json_object('to', NEW.status)
                 ELSE json_object('to', NEW.status, 'retry_of', NEW.retry_of, 'attempt', NEW.attempt) END,
            NEW.created_at);
END;

-- The end's cause and the time are those that run_c_by_hand fills in, whether it has been here or not.
DROP TRIGGER IF EXISTS run_changed;
CREATE TRIGGER run_changed AFTER UPDATE OF status ON runs
WHEN OLD.status <> NEW.status
BEGIN
    INSERT INTO run_events (run_id, seq, kind, level, message, payload, created_at)
    VALUES (NEW.run_id,
            (SELECT coalesce(max(e.seq), 0) FROM run_events e WHERE e.run_id = NEW.run_id) + 1,
            'transition',
            CASE NEW.status WHEN 'failed' THEN 'error' WHEN 'cancelled' THEN 'warn' ELSE 'info' END,
            CASE NEW.status WHEN 'claimed' THEN 'Run claimed by worker' WHEN 'running' THEN 'Run started'
                            WHEN 'success' THEN 'Run succeeded' WHEN 'failed' THEN 'Run failed'
                            ELSE 'Run cancelled' END,
            CASE WHEN NEW.status = 'claimed'
                     THEN json_object('from', OLD.status, 'to', NEW.status, 'worker_id', NEW.claimed_by)
                 WHEN NEW.end_cause IS NOT NULL
                     THEN json_object('from', OLD.status, 'to', NEW.status, 'cause', NEW.end_cause)
                 WHEN NEW.status IN ({run_terminal})
                     THEN json_object('from', OLD.status, 'to', NEW.status, 'cause', 'statement')
                 ELSE json_object('from', OLD.status, 'to', NEW.status) END,
            -- A verb may change a run twice at one time, so that updated_at stays as it is at the second change.
            CASE WHEN NEW.updated_at <> OLD.updated_at THEN NEW.updated_at
                 ELSE coalesce(NEW.finished_at, iif(NEW.status = 'claimed', NEW.started_at, NULL),
                               CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END);
END;

-- The twin of 22_sync_guards.sql: an arrow that a lifecycle of syncs does not have.
DROP TRIGGER IF EXISTS sync_change;
CREATE TRIGGER sync_change BEFORE UPDATE OF state ON run_metadata
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {sync_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the sync cannot go from its state to that one');
END;

DROP TRIGGER IF EXISTS partition_change;
CREATE TRIGGER partition_change BEFORE UPDATE OF state ON partition_progress
WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {partition_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the partition cannot go from its state to that one');
END;

DROP TRIGGER IF EXISTS worker_run_change;
CREATE TRIGGER worker_run_change BEFORE UPDATE OF status ON worker_runs
WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (VALUES {worker_run_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the worker run cannot go from its status to that one');
END;

-- Runs that failed or were cancelled stand in a list of their own.
DROP TRIGGER IF EXISTS run_ended_badly;
CREATE TRIGGER run_ended_badly AFTER UPDATE OF status ON runs
WHEN NEW.status IN ('failed', 'cancelled') AND OLD.status <> NEW.status
BEGIN
    INSERT INTO run_ends (status, run_id) VALUES (NEW.status, NEW.run_id) ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_brought_ended;
CREATE TRIGGER run_brought_ended AFTER INSERT ON runs
WHEN NEW.status IN ('failed', 'cancelled')
BEGIN
    INSERT INTO run_ends (status, run_id) VALUES (NEW.status, NEW.run_id) ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_gone;
CREATE TRIGGER run_gone AFTER DELETE ON runs
WHEN OLD.status IN ('failed', 'cancelled')
BEGIN
    DELETE FROM run_ends WHERE status = OLD.status AND run_id = OLD.run_id;
END;

-- The twin of 07_run_marks.sql: what lists find runs by.
DROP VIEW IF EXISTS marks_of_runs;
CREATE VIEW marks_of_runs (kind, value, run_id) AS
    SELECT 'lane', lane, run_id FROM runs WHERE lane <> 'ops'
    UNION ALL SELECT 'feed', concurrency_key, run_id FROM runs WHERE lane = 'sync' AND concurrency_key IS NOT NULL
    UNION ALL SELECT 'sha', git_sha, run_id FROM runs WHERE git_sha IS NOT NULL
    UNION ALL SELECT 'ref', git_ref, run_id FROM runs WHERE git_ref IS NOT NULL;

DROP TRIGGER IF EXISTS run_marked_first;
CREATE TRIGGER run_marked_first AFTER INSERT ON runs
WHEN NEW.git_sha IS NOT NULL OR NEW.git_ref IS NOT NULL OR NEW.lane <> 'ops'
BEGIN
    INSERT INTO run_marks (kind, value, run_id)
    SELECT m.kind, m.value, m.run_id FROM marks_of_runs m WHERE m.run_id = NEW.run_id ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_marked;
CREATE TRIGGER run_marked AFTER UPDATE OF lane, concurrency_key, git_sha, git_ref ON runs
BEGIN
    DELETE FROM run_marks WHERE kind = 'lane' AND value = OLD.lane AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'feed' AND value = OLD.concurrency_key AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'sha' AND value = OLD.git_sha AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'ref' AND value = OLD.git_ref AND run_id = OLD.run_id;
    INSERT INTO run_marks (kind, value, run_id)
    SELECT m.kind, m.value, m.run_id FROM marks_of_runs m WHERE m.run_id = NEW.run_id ON CONFLICT DO NOTHING;
END;

DROP TRIGGER IF EXISTS run_unmarked;
CREATE TRIGGER run_unmarked AFTER DELETE ON runs
BEGIN
    DELETE FROM run_marks WHERE kind = 'lane' AND value = OLD.lane AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'feed' AND value = OLD.concurrency_key AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'sha' AND value = OLD.git_sha AND run_id = OLD.run_id;
    DELETE FROM run_marks WHERE kind = 'ref' AND value = OLD.git_ref AND run_id = OLD.run_id;
END;

-- The twin of 24_audit_guard.sql: what is on record does not change.
DROP TRIGGER IF EXISTS audit_change;
CREATE TRIGGER audit_change BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'TM008: what is on record does not change');
END;

-- The twin of 06_run_ends.sql: an end of a run that people may have to be told of.
DROP TRIGGER IF EXISTS run_notice;
CREATE TRIGGER run_notice AFTER UPDATE OF status ON runs
WHEN NEW.status IN ({run_terminal}) AND OLD.status NOT IN ({run_terminal}) AND NEW.lane <> 'sync'
     AND (NEW.status = 'failed' OR NEW.end_cause = 'stale'
          OR (NEW.status = 'success'
              AND (NEW.retry_of IS NOT NULL OR json_type(NEW.metadata, '$.schedule') IS NOT NULL)))
BEGIN
    INSERT INTO run_notices (run_id) VALUES (NEW.run_id) ON CONFLICT DO NOTHING;
END;
