-- From now on nobody is sent to this agent for what these jobs left.
UPDATE {ops}.job_outputs SET agent_id = NULL WHERE agent_id = $1 AND made_by {in} $2 {ni}
