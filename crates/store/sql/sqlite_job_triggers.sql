-- The twin of 26_job_guards.sql: what the database refuses of a job, and the record of its changes.

DROP TRIGGER IF EXISTS job_change;
CREATE TRIGGER job_change BEFORE UPDATE OF code ON jobs
WHEN OLD.code <> NEW.code AND (OLD.code, NEW.code) NOT IN (VALUES {job_pairs})
BEGIN
    SELECT RAISE(ABORT, 'TM008: the job cannot go from its code to that one');
END;

DROP TRIGGER IF EXISTS job_end;
CREATE TRIGGER job_end BEFORE UPDATE OF message, exit_code, task_id, ended_at, reused_from ON jobs
WHEN OLD.ended_at IS NOT NULL AND OLD.code = NEW.code
     AND (OLD.message IS NOT NEW.message OR OLD.exit_code IS NOT NEW.exit_code OR OLD.task_id IS NOT NEW.task_id
          OR OLD.ended_at IS NOT NEW.ended_at OR OLD.reused_from IS NOT NEW.reused_from)
BEGIN
    SELECT RAISE(ABORT, 'TM008: the job has ended, and does not change any more');
END;

DROP TRIGGER IF EXISTS job_changed;
CREATE TRIGGER job_changed AFTER UPDATE OF code ON jobs
WHEN OLD.code <> NEW.code
BEGIN
    INSERT INTO job_events (job_id, seq, from_code, to_code, message, at)
    VALUES (NEW.job_id, (SELECT coalesce(max(e.seq), 0) + 1 FROM job_events e WHERE e.job_id = NEW.job_id),
            OLD.code, NEW.code, NEW.message,
            -- A plain statement may leave the time as it is.
            CASE WHEN NEW.updated_at <> OLD.updated_at THEN NEW.updated_at
                 ELSE CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 END);
    -- A plain statement: the controller, which gives each of its changes a version, has to hear of it.
    INSERT INTO job_changes (subject, version) SELECT NEW.job_id, 1 WHERE NEW.version = OLD.version
    ON CONFLICT (subject) DO UPDATE SET version = version + 1;
END;

DROP TRIGGER IF EXISTS job_record;
CREATE TRIGGER job_record BEFORE UPDATE ON job_events
BEGIN
    SELECT RAISE(ABORT, 'TM008: what is on record does not change');
END;
