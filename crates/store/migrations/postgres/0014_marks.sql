-- What lists find runs by, besides their place and how they ended: a commit, a branch, a lane, a feed. A run is entered
-- anew in all of its indexes by every claim and every finish, and each index that it could be in is opened and asked
-- by every step, also where the run has nothing to enter. A mark is written once (ADR 22).
CREATE TABLE {ops}.run_marks (
    -- lane, feed, sha or ref.
    kind   text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, value, run_id)
);
INSERT INTO {ops}.run_marks (kind, value, run_id)
SELECT m.kind, m.value, r.run_id
  FROM {ops}.runs r
 CROSS JOIN LATERAL (VALUES ('lane', nullif(r.lane, 'ops')),
                            ('feed', CASE WHEN r.lane = 'sync' THEN r.concurrency_key END),
                            ('sha', r.git_sha), ('ref', r.git_ref)) m (kind, value)
 WHERE m.value IS NOT NULL;
DROP INDEX {ops}.runs_of_lane, {ops}.runs_of_feed, {ops}.runs_of_sha, {ops}.runs_of_ref;
