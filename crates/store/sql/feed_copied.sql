UPDATE {ops}.feeds
   SET copied_updated_at = coalesce($2, copied_updated_at), copied_at = coalesce($3, {now}), copy_error = $4
 WHERE feed = $1
