-- What an agent keeps in its directory, and how the directory proves whose it is.
-- SHA-256 of what only that directory knows: with it an agent may come with another token when its own is over.
ALTER TABLE {ops}.agents ADD COLUMN secret_hash text COLLATE "C";

-- What an agent is asked about: the outputs that it made and still has.
CREATE INDEX job_outputs_kept ON {ops}.job_outputs (agent_id, made_by) WHERE agent_id IS NOT NULL;
