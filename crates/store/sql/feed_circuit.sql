-- Names the state that the caller believes in: of several that find the feed down, or probe it, one writes.
UPDATE {ops}.feeds SET circuit = $3, circuit_reason = $4, circuit_rev = circuit_rev + 1
 WHERE feed = $1 AND circuit_rev = $2
