-- Another token speaks for the agent from now on.
UPDATE {ops}.agents SET token_id = $2 WHERE agent_id = $1
