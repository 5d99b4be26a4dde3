-- What lists find runs by, besides their place and how they ended: a commit, a branch, a lane, a feed. One table for
-- all of them, as on PostgreSQL, where an index for each would be paid for by every step of every run (ADR 22).
CREATE TABLE run_marks (
    -- lane, feed, sha or ref.
    kind   TEXT NOT NULL,
    value  TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (kind, value, run_id)
) STRICT, WITHOUT ROWID;
INSERT INTO run_marks (kind, value, run_id) SELECT 'lane', lane, run_id FROM runs WHERE lane <> 'ops';
INSERT INTO run_marks (kind, value, run_id)
SELECT 'feed', concurrency_key, run_id FROM runs WHERE lane = 'sync' AND concurrency_key IS NOT NULL;
INSERT INTO run_marks (kind, value, run_id) SELECT 'sha', git_sha, run_id FROM runs WHERE git_sha IS NOT NULL;
INSERT INTO run_marks (kind, value, run_id) SELECT 'ref', git_ref, run_id FROM runs WHERE git_ref IS NOT NULL;
DROP INDEX runs_of_lane;
DROP INDEX runs_of_feed;
DROP INDEX runs_of_sha;
DROP INDEX runs_of_ref;
