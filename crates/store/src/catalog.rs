//! Every statement that both databases share, or that differs between them in a file that says why.

use crate::Schema;
use std::sync::Arc;

/// One statement of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statement(usize);

/// The statements, rendered for one database.
#[derive(Debug)]
pub(crate) struct Catalog(Vec<Arc<str>>);

impl Catalog {
    pub(crate) fn new(schema: &Schema) -> Self {
        let texts = TEXTS.iter().map(|(postgres, sqlite)| {
            let text = if schema.name().is_empty() { sqlite } else { postgres };
            Arc::from(schema.render(text))
        });
        Self(texts.collect())
    }

    pub(crate) fn text(&self, statement: Statement) -> Arc<str> {
        self.0[statement.0].clone()
    }
}

/// Numbers the statements in the order in which they stand.
macro_rules! catalog {
    ($($name:ident = $postgres:literal $(| $sqlite:literal)?),+ $(,)?) => {
        catalog!(@number 0usize, $($name,)+);
        const TEXTS: &[(&str, &str)] = &[$(catalog!(@pair $postgres $(, $sqlite)?)),+];

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
    (@number $index:expr, $name:ident, $($rest:ident,)*) => {
        pub(crate) const $name: Statement = Statement($index);
        catalog!(@number $index + 1usize, $($rest,)*);
    };
    (@number $index:expr,) => {};
    (@pair $both:literal) => {
        (include_str!(concat!("../sql/", $both)), include_str!(concat!("../sql/", $both)))
    };
    (@pair $postgres:literal, $sqlite:literal) => {
        (include_str!(concat!("../sql/", $postgres)), include_str!(concat!("../sql/", $sqlite)))
    };
}

catalog! {
    RUN_GET = "run_get.sql",
    RUN_LIST = "run_list.sql",
    RUN_SUCCESSOR = "run_successor.sql",
    EVENT_LIST = "event_list.sql",
    ARTIFACT_LIST = "artifact_list.sql",
    PROJECT_CREATE = "project_create.sql",
    PROJECT_LIST = "project_list.sql",
    ENVIRONMENT_CREATE = "environment_create.sql",
    ENVIRONMENT_LIST = "environment_list.sql",
    FLAG_SET = "flag_set.sql",
    FLAG_CLEAR = "flag_clear.sql",
    FLAG_LIST = "flag_list.sql",
    WORKER_LIST = "worker_list.sql",
    PRUNE_RUNS = "prune_runs.sql",
    PRUNE_EVENTS = "prune_events.sql",
    PRUNE_ARTIFACTS = "prune_artifacts.sql",
    PRUNE_WORKERS = "prune_workers.sql",
    PRUNE_FIRES = "prune_fires.sql",
    WHY_KEY = "why_key.sql",
    WHY_AHEAD = "why_ahead.sql",
    WHY_WORKERS = "why_workers.postgres.sql" | "why_workers.sqlite.sql",
    WHY_BEAT = "why_beat.sql",
    WHY_LAST_EVENT = "why_last_event.sql",
    STATS_QUEUE = "stats_queue.postgres.sql" | "stats_queue.sqlite.sql",
    STATS_ACTIVE = "stats_active.sql",
    STATS_OUTCOMES = "stats_outcomes.sql",
    STATS_DURATIONS = "stats_durations.postgres.sql" | "stats_durations.sqlite.sql",
    SCHEDULE_PUT = "schedule_put.sql",
    SCHEDULE_LIST = "schedule_list.sql",
    SCHEDULE_REMOVE = "schedule_remove.sql",
    SCHEDULE_PAUSE = "schedule_pause.sql",
    SCHEDULE_DUE = "schedule_due.postgres.sql" | "schedule_due.sqlite.sql",
    SCHEDULE_ADVANCE = "schedule_advance.sql",
    FIRE_RECORD = "fire_record.sql",
    FIRE_LIST = "fire_list.sql",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_its_own_number_and_no_name_is_left_unrendered() {
        assert_eq!(NAMES.len(), TEXTS.len());
        for schema in [Schema::postgres("ops").unwrap(), Schema::sqlite()] {
            for (name, text) in NAMES.iter().zip(&Catalog::new(&schema).0) {
                assert!(!text.contains("{ops}"), "{name}: {text}");
            }
        }
    }
}
