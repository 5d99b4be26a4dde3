UPDATE {sync}.run_metadata SET delete_note = $2 WHERE run_id = $1
