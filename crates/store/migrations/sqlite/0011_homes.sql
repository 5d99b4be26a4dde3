-- What an agent keeps in its directory, and how the directory proves whose it is.
-- Differs: types, as in 0001_kernel.sql (see codec.rs).
-- SHA-256 of what only that directory knows: with it an agent may come with another token when its own is over.
ALTER TABLE agents ADD COLUMN secret_hash TEXT;

-- What an agent is asked about: the outputs that it made and still has.
CREATE INDEX job_outputs_kept ON job_outputs (agent_id, made_by) WHERE agent_id IS NOT NULL;
