-- Events of runs.

-- name: run_events_triggers
-- Events of transitions. Triggers write all of them, so that changes by plain SQL statements are recorded too.
DROP TRIGGER IF EXISTS run_queued;
CREATE TRIGGER run_queued AFTER INSERT ON runs
BEGIN
    INSERT INTO run_events (run_id, seq, kind, level, message, payload, created_at)
    VALUES (NEW.run_id, 1, 'transition', 'info', 'Run queued',
            CASE WHEN NEW.retry_of IS NULL THEN json_object('to', NEW.status)
                 ELSE json_object('to', NEW.status, 'retry_of', NEW.retry_of, 'attempt', NEW.attempt) END,
            NEW.created_at);
END;

-- The end cause and the time are those that run_c_by_hand fills in, whether it has fired before or not.
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
            -- A verb may change a run twice at the same time; the second change leaves updated_at unchanged.
            CASE WHEN NEW.updated_at <> OLD.updated_at THEN NEW.updated_at
                 ELSE coalesce(NEW.finished_at, iif(NEW.status = 'claimed', NEW.started_at, NULL),
                               CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000) END);
END;
