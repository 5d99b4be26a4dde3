//! The functions of PostgreSQL and the triggers of both databases.

use crate::Schema;
use crate::sections::{SQLITE_TRIGGERS, Sections};

/// The functions and triggers of PostgreSQL. A trigger comes after its function.
pub(crate) const POSTGRES_CODE: &[&str] = &[
    include_str!("../../sql/kernel/postgres/readable.sql"),
    include_str!("../../sql/kernel/postgres/refusals.sql"),
    include_str!("../../sql/kernel/postgres/guards.sql"),
    include_str!("../../sql/kernel/postgres/run_by_hand.sql"),
    include_str!("../../sql/kernel/postgres/concurrency_keys.sql"),
    include_str!("../../sql/kernel/postgres/run_events.sql"),
    include_str!("../../sql/kernel/postgres/run_lists.sql"),
    include_str!("../../sql/kernel/postgres/queue.sql"),
    include_str!("../../sql/kernel/postgres/queue_many.sql"),
    include_str!("../../sql/kernel/postgres/claim.sql"),
    include_str!("../../sql/kernel/postgres/append_event.sql"),
    include_str!("../../sql/kernel/postgres/heartbeat.sql"),
    include_str!("../../sql/kernel/postgres/finish.sql"),
    include_str!("../../sql/kernel/postgres/cancel.sql"),
    include_str!("../../sql/kernel/postgres/sweep.sql"),
    include_str!("../../sql/kernel/postgres/work_left.sql"),
    include_str!("../../sql/kernel/postgres/messages.sql"),
    include_str!("../../sql/kernel/postgres/store_page.sql"),
];

pub(super) fn postgres(schema: &Schema) -> String {
    POSTGRES_CODE.iter().map(|text| schema.render(text)).collect::<Vec<_>>().join("\n")
}

pub(super) fn sqlite(schema: &Schema) -> String {
    sqlite_templates().map(|text| schema.render(text)).collect::<Vec<_>>().join("\n\n")
}

pub(super) fn sqlite_templates() -> impl Iterator<Item = &'static str> {
    SQLITE_TRIGGERS.iter().map(|name| Sections::sqlite().statement(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second of two functions with one name would silently replace the first.
    #[test]
    fn postgres_functions_have_distinct_names() {
        let names = POSTGRES_CODE.iter().flat_map(|code| code.split("FUNCTION {ops}.").skip(1));
        let created =
            names.filter_map(|rest| rest.split_once('(')).filter(|(_, rest)| !rest.starts_with(");"));
        let mut seen = std::collections::HashSet::new();
        for (name, _) in created {
            assert!(seen.insert(name), "{name} is created twice");
        }
    }
}
