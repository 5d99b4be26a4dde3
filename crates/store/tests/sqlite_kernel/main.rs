//! The kernel on SQLite: each operation, each trigger, and plain SQL by an operator.
//!
//! The conformance suite checks that both databases behave alike; these cases cover what is specific to SQLite.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test helpers may unwrap")]

mod fixture;
mod groups;
mod plain_sql;
mod queue_and_claim;
mod run_end;
