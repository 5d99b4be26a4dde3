//! Tests the query of the Terraform files that scales workers, on PostgreSQL.

use std::path::PathBuf;

use crate::fixture::{Fixture, Kind};

/// Three messages: one is due, one is delayed, and one is held by a worker.
const MESSAGES: &str = "INSERT INTO ops.messages (queue, message_id, generation, grp, body, enqueued_at, ready_at, \
     visible_at, expires_at, locked_by) \
     SELECT 'work-items', name, 0, 'f', '{}', now(), now(), now() + delay, now() + interval '1 day', worker \
       FROM (VALUES ('due', interval '-1 s', NULL), ('delayed', interval '1 h', NULL), \
                    ('held', interval '1 h', gen_random_uuid())) AS m (name, delay, worker) \
     RETURNING message_id";

#[test]
fn scaling_query_counts_due_and_held_messages() {
    let fixture = Fixture::new(Kind::Postgres);
    fixture.sql(MESSAGES).expect("the messages are inserted");
    let roles = "../../deploy/terraform/azure-container-apps/roles.tf";
    let roles =
        std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(roles)).expect("it exists");
    let (_, query) = roles.split_once("queue_depth = <<-SQL\n").expect("the query exists");
    let (query, _) = query.split_once("\n  SQL\n").expect("the query ends");
    for (queue, depth) in [("work-items", "2"), ("consolidate", "0")] {
        assert!(roles.contains(&format!("= \"{queue}\"")), "a role is scaled by {queue}");
        let query = query.replace("%s", queue).replace("count(*)", "CAST(count(*) AS text)");
        assert_eq!(fixture.sql(&query).expect("the query runs"), [depth], "{queue}");
    }
}
