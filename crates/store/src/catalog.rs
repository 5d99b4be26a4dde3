//! The statements of both databases, by name. Their texts are the sections of the files in `sql/`.

use crate::Schema;
use crate::sections::{Dialect, Sections};
use crate::tx::Context;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use tidemill_core::feed::RawTable;

/// One statement of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statement(usize);

impl Statement {
    /// The statement for one raw table, which its text names as `{raw}` and `{raw_id}`.
    pub(crate) fn of(self, raw: &RawTable) -> RawStatement<'_> {
        RawStatement { statement: self, raw }
    }
}

/// A statement for one raw table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawStatement<'a> {
    statement: Statement,
    raw: &'a RawTable,
}

/// A statement whose text is known.
pub(crate) trait SqlText {
    fn text(self, context: &Context) -> Arc<str>;
}

impl SqlText for Statement {
    fn text(self, context: &Context) -> Arc<str> {
        context.catalog.text(self)
    }
}

impl SqlText for RawStatement<'_> {
    fn text(self, context: &Context) -> Arc<str> {
        context.raw_texts.text(self, context)
    }
}

/// The texts of the statements for each raw table. There are as many tables as feeds.
#[derive(Debug, Default)]
pub(crate) struct RawTexts(RwLock<HashMap<RawTable, HashMap<usize, Arc<str>>>>);

impl RawTexts {
    fn text(&self, RawStatement { statement, raw }: RawStatement<'_>, context: &Context) -> Arc<str> {
        // A panic cannot leave the map half written, so a poisoned lock is no reason to fail.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(raw).and_then(|texts| texts.get(&statement.0)) {
            return text.clone();
        }
        drop(known);
        let text: Arc<str> = Arc::from(context.schema.render_raw(&context.catalog.text(statement), raw));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(raw.clone()).or_default().insert(statement.0, text.clone());
        text
    }
}

/// The statements, rendered for one database.
#[derive(Debug)]
pub(crate) struct Catalog(Vec<Arc<str>>);

impl Catalog {
    pub(crate) fn new(schema: &Schema) -> Self {
        let sections = if schema.is_sqlite() { Sections::sqlite() } else { Sections::postgres() };
        let texts = NAMES
            .iter()
            .map(|(name, _)| Arc::from(schema.render(sections.statement(&name.to_ascii_lowercase()))));
        Self(texts.collect())
    }

    pub(crate) fn text(&self, statement: Statement) -> Arc<str> {
        self.0[statement.0].clone()
    }
}

/// The text of a statement on SQLite, where it is the same for every store.
pub(crate) fn sqlite(statement: Statement) -> &'static str {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(&Schema::sqlite()));
    &CATALOG.0[statement.0]
}

/// Declares a constant for each statement. Its section has the same name in lower case.
macro_rules! catalog {
    ($($dialect:ident { $($name:ident),+ $(,)? })+) => {
        #[expect(non_camel_case_types, reason = "named as the statements are")]
        #[derive(Clone, Copy)]
        enum Number { $($($name),+),+ }
        $($(pub(crate) const $name: Statement = Statement(Number::$name as usize);)+)+
        pub(crate) const NAMES: &[(&str, Dialect)] = &[$($((stringify!($name), Dialect::$dialect)),+),+];
    };
}

catalog! {
    Both {
        // run.sql
        RUN_GET, RUN_CLAIMS, RUN_SUCCESSOR, ARTIFACT_LIST, RUNS_STALLED, RUN_LANE, RUN_LOCK, RUN_UNLEASE,
        RUN_TAKE, RUN_GO, RUN_END,
        // run_list.sql
        RUN_LIST, RUN_LIST_ID, RUN_ID_COUNT, RUN_LIST_ENDED, RUN_FAILURES, RUN_FAILURES_END,
        RUN_LIST_HELD, RUN_LIST_QUEUED,
        RUN_WAITING, RUN_LIST_ENV, RUN_LIST_LOOKUP, RUN_LIST_NAME,
        RUN_QUEUED_COUNT, RUN_LOOKUP_COUNT, RUN_LOOKUP_VALUES, RUN_GRAPHS,
        // event.sql
        EVENT_LIST, EVENT_TAIL, EVENT_LAST, LIVE_POINT, LIVE_PAGE,
        // project.sql
        PROJECT_CREATE, PROJECT_LIST, ENVIRONMENT_CREATE, ENVIRONMENT_LIST, ENVIRONMENT_IDS,
        REQUEST_KEY_TAKE, REQUEST_KEY_GET, REQUEST_KEY_ANSWER, FLAG_SET, FLAG_CLEAR, FLAG_LIST,
        FLAG_PROBE_CLEAR,
        // worker.sql
        WORKER_LIST, WORKER_GET, WORKER_DRAIN,
        // prune.sql
        PRUNE_RUNS, PRUNE_EVENTS, PRUNE_LEFT, PRUNE_LEFT_DONE, PRUNE_ARTIFACTS, PRUNE_WORKERS, PRUNE_FIRES,
        PRUNE_REQUEST_KEYS, PRUNE_HOOK_DELIVERIES, PRUNE_PAGES, PRUNE_WORKER_RUNS, PRUNE_PARTITIONS, PRUNE_SYNC,
        PRUNE_ALERTS, PRUNE_DELIVERIES, PRUNE_SESSIONS, PRUNE_TOKENS, PRUNE_GRAPH,
        PRUNE_JOBS_NEXT, PRUNE_TASK_LOGS, PRUNE_TASKS, PRUNE_JOB_OUTPUTS,
        PRUNE_JOB_EVENTS, PRUNE_JOB_NEEDS, PRUNE_JOBS, PRUNE_AGENTS,
        // why.sql
        WHY_KEY, WHY_AHEAD, WHY_WORKERS, WHY_BEAT, WHY_LAST_EVENT,
        // stats.sql
        STATS_QUEUE, STATS_ACTIVE, STATS_OUTCOMES, STATS_DURATIONS, STANDING_NOW,
        // schedule.sql
        SCHEDULE_PUT, SCHEDULE_LIST, SCHEDULE_REMOVE, SCHEDULE_PAUSE, SCHEDULE_DUE, SCHEDULE_NEXT,
        SCHEDULE_ADVANCE, FIRE_RECORD, FIRE_LIST, HOOK_PUT, HOOK_LOCK, HOOK_LIST, HOOK_REMOVE,
        HOOK_DELIVERY_RECORD, HOOK_DELIVERY_RUN,
        // message.sql
        MESSAGE_SEND, MESSAGE_RECEIVE, MESSAGE_COMPLETE, MESSAGE_RENEW, MESSAGE_ABANDON,
        MESSAGE_KILL, MESSAGE_RELEASE, MESSAGE_GET, MESSAGE_PEEK, MESSAGE_HELD, MESSAGE_DEAD,
        MESSAGE_REPLAY_COPY, MESSAGE_REPLAY_DONE, MESSAGE_DEPTH, MESSAGE_EXPIRE, MESSAGE_PROLONG,
        MESSAGE_PURGE, QUEUE_PUT, QUEUE_LIST, MESSAGE_OF_RUN,
        // feed.sql
        FEED_ADD, FEED_LIST, FEED_LOCK, FEED_WATERMARK, FEED_CIRCUIT, FEED_COPIED, FEED_REFUSED, WATERMARK_NOTE,
        WATERMARK_LIST, GAP_ADD, GAP_LIST, GAP_PAGE, GAP_CLOSE, FEED_TABLE_LOCK, FEED_TABLE_PUT, FEED_TABLE_GET,
        FEED_TABLE_OTHERS, FEED_TABLE_HOLD,
        // sync.sql
        SYNC_INSERT, SYNC_GET, SYNC_OF_RUN, SYNC_LIST, SYNC_LIVE, SYNC_LOCK, SYNC_COUNT,
        SYNC_COUNTED, SYNC_STATE, SYNC_TRIGGER, SYNC_REPIN, SYNC_CONSUME, SYNC_PROGRESS,
        SYNC_DELETE_NOTE, SYNC_EVIDENCE, SYNC_ABSENT_KEPT, SYNC_COMPLETE, SYNC_RESUME, SYNC_NEWER, SYNC_BEFORE,
        SYNC_FULL_BEFORE, SYNC_OLD, SYNC_REBIND,
        // partition.sql
        PARTITION_INSERT, PARTITION_GET, PARTITION_LIST, PARTITION_END, PARTITION_AGAIN,
        PARTITION_COUNTED, PARTITION_PASS,
        PARTITION_RECEIVE, PARTITION_FAULT, PARTITION_FAIL, PARTITION_FAIL_OPEN, PARTITION_REOPEN,
        PARTITION_RESTART, PARTITION_FORGET, PARTITION_FORGET_REJECTS, PARTITION_OPEN, PARTITION_CONSOLIDATED,
        PARTITION_REFUSED_LESS,
        PARTITION_ANEW, WORKER_RUN_BEGIN, WORKER_RUN_COUNT, WORKER_RUN_END, WORKER_RUN_END_ALL,
        // page.sql
        PAGE_PACE, PAGE_LAST, PAGE_RANGE, PAGE_SEEN, PAGE_DISTINCT, PAGE_REPEATS, RAW_UPSERT,
        RAW_CREATE, RAW_COLUMNS,
        // feed_record.sql
        ROW_OPEN, ROW_STALE, ROW_ACTIVE, ROW_NOT_ACTIVE, ROW_ACTIVE_COUNT, ROW_UNSEEN, ROW_UNSEEN_COUNT, RECORD_ENTRIES,
        ROW_CLAIMS, ROW_PUT, ROW_ABSENT, ROW_FORGET,
        // record.sql
        RECORD_OPEN, RECORD_STALE, RECORD_UNSEEN,
        // diamond.sql
        DIAMOND_PROOF, DIAMOND_ACTIVE, DIAMOND_NOT_ACTIVE, DIAMOND_ACTIVE_COUNT, DIAMOND_UNSEEN, DIAMOND_UNSEEN_COUNT,
        DIAMOND_DELETE, DIAMOND_UPSERT,
        // rule.sql
        RULE_LIST, RULE_ADD, RULE_REMOVE, RULE_SET_FIND, RULE_SET_ADD, RULE_SET_GET,
        // reject.sql
        REJECT_PUT, REJECT_LIST, REJECT_CLEAR, REJECT_OF_SYNC, REJECT_COUNT, REJECT_UNIQUE_MARK,
        REJECT_UNIQUE_FORGET, REJECT_UNIQUE_LIST, REJECT_UNIQUE_COUNT, REJECT_ADVICE,
        // alert.sql
        ALERT_ADD, ALERT_RESOLVE, ALERT_LASTING, ALERT_LIST, ALERT_UNSENT, ALERT_UNSENT_NEXT,
        ALERT_SENT, ALERT_SET_ASIDE, ALERT_LOCK, NOTICE_TAKE, NOTICE_REMOVE, LOOK_DEAD,
        LOOK_DEAD_SINCE, LOOK_DEEP, LOOK_STUCK, DELIVERY_LAST, DELIVERY_ADD, DELIVERY_CLAIM,
        DELIVERY_SENT, DELIVERY_FAILED,
        // access.sql
        TOKEN_LOCK, TOKEN_ADMINS, TOKEN_UNKNOWN_PROJECT, TOKEN_ADD, TOKEN_LIST, TOKEN_GET, TOKEN_HOLD, TOKEN_REVOKE,
        TOKEN_FIND, TOKEN_USE, SESSION_FIND, SECRET_GOOD, SESSION_USE, SESSION_ADD, SESSION_TRIM,
        SESSION_REMOVE,
        // audit.sql
        AUDIT_ADD, AUDIT_MAY, AUDIT_LIST, AUDIT_UNSEALED, AUDIT_OF_SEALS, SEAL_LOCK, SEAL_LAST,
        SEAL_ADD, SEAL_ENTRIES, SEAL_PAGE, SEAL_HEAD, SEAL_EXPIRED, SEAL_PRUNE,
        SEAL_PRUNE_ENTRIES, SEAL_PRUNE_OLDER,
        // graph.sql
        GRAPH_ADD, GRAPH_GET, GRAPH_COUNTS, GRAPH_CANCEL, GRAPH_ENDS, GRAPH_NOTE, GRAPH_RUN,
        GRAPH_RUN_FOLLOW, GRAPH_RUN_TAKE, GRAPH_RUN_END, GRAPH_RUN_STATES, GRAPH_RUN_OPEN,
        CHANGE_PUT, CHANGE_LIST, CHANGE_SEEN, MARKER_GRAPHS, MARKER_JOBS, MARKER_AGENTS,
        // job.sql
        JOB_INSERT, JOB_LATEST, JOB_GET, JOB_SPEC, JOB_SPECS, JOB_FIND, JOB_NAMES, JOB_LIST,
        JOB_LIST_CHANGED, JOB_LIST_CODES, JOB_HELD, NEED_LIST, JOB_ASTRAY, JOB_LIVE,
        JOB_LIVE_OF_RUNS, JOB_WISHES, JOB_CANCEL, JOB_CANCEL_NAMED, JOB_WRITE, JOB_WHY_NEXT,
        JOB_EVENT_LIST, NEED_INSERT, NEED_LIVE, NEED_LIVE_OF_RUNS, NEED_OPEN, NEED_HELD,
        NEED_HELD_OF_RUNS, NEED_HELD_OF_JOB,
        // task.sql
        TASK_ADD, TASK_END, TASK_GET, TASK_LOCK, TASK_LIST, TASK_ACTIVE, TASK_ACTIVE_OF_JOBS,
        TASK_HELD, TASK_ORDERS, TASK_INPUTS, TASK_STAGE, TASK_RESULT, TASK_LOGGED, TASK_STANDING,
        LOG_ADD, LOG_LIST, LOG_TAIL,
        // output.sql
        OUTPUT_ADD, OUTPUT_COPY, OUTPUT_LIST, OUTPUT_HELD, OUTPUT_USES, OUTPUT_LET_GO,
        // agent.sql
        AGENT_PUT, AGENT_REBIND, AGENT_OF_TOKEN, AGENT_GET, AGENT_LOCK, AGENT_LIST, AGENT_LIVE,
        AGENT_BEAT, AGENT_LEAVE, AGENT_DRAIN, AGENT_FORGET, AGENT_JOBS, AGENT_RUNS, AGENT_SHARE, AGENT_ROOM,
        POOL_LIST, POOL_SIZES, POOL_PUT, POOL_REMOVE, POOL_HOLDERS,
        LEASE_GET, LEASE_LOCK, LEASE_TAKE, LEASE_RENEW, LEASE_RAISE, LEASE_TOUCH,
    }
    Postgres {
        // page.sql
        PAGE_STORE,
        // prune.sql
        PRUNE_STEPS,
    }
    Sqlite {
        // page.sql and partition.sql
        PAGE_INSERT, PARTITION_ADVANCE,
        // kernel/sqlite/queue.sql
        QUEUE_LOOKUP, QUEUE_INSERT, QUEUE_LABEL_SET_INSERT, QUEUE_ENVIRONMENT_NAMES,
        // kernel/sqlite/queue_many.sql
        QUEUE_ENVIRONMENT,
        // kernel/sqlite/claim.sql
        CLAIM_PRECHECK, CLAIM_REPEAT, CLAIM_RUNS,
        // kernel/sqlite/append_event.sql
        APPEND_LOOKUP, APPEND_INSERT, APPEND_REQUEST, APPEND_REFUSAL,
        // kernel/sqlite/heartbeat.sql
        RUN_LEASE_READ, RUN_LEASE_START, RUN_LEASE_EXTEND, RUN_STALL, RUN_STALL_NOTICE,
        WORKER_REGISTER, WORKER_BEAT, WORKER_BEAT_EXTEND, WORKER_BEAT_RUN, WORKER_IS_DRAINING,
        WORKER_RETIRE,
        // kernel/sqlite/finish.sql
        FINISH_LOOKUP, FINISH_START, FINISH_RUNS, FINISH_RUNS_BY_ID,
        // kernel/sqlite/cancel.sql
        CANCEL_QUEUED, CANCEL_REQUEST, CANCEL_JOBS, CANCEL_GRAPH, RETRY_INSERT, ARTIFACT_INSERT,
        // kernel/sqlite/concurrency_keys.sql
        KEY_ENTER, KEY_DISPLACE_HEAD, KEY_SET_HEAD, GATE_READY_AT, GATE_DUE, GATE_SET,
        KEY_REPAIR_REMOVE, KEY_REPAIR_INSERT, KEY_REPAIR_OPEN,
        // kernel/sqlite/sweep.sql
        SWEEP_DEAD_WORKERS, SWEEP_CANDIDATES, SWEEP_OUTPUT_TAIL,
        // kernel/sqlite/work_left.sql
        WORK_LEFT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_rendered_without_a_name_in_braces() {
        for schema in [Schema::postgres("ops").unwrap(), Schema::sqlite()] {
            for ((name, _), text) in NAMES.iter().zip(&Catalog::new(&schema).0) {
                let is_name = |part: &str| {
                    part.split_once('}').is_some_and(|(name, _)| {
                        // The names of the raw table are replaced for each feed.
                        !matches!(name, "" | "raw" | "raw_id")
                            && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
                    })
                };
                assert!(!text.split('{').skip(1).any(is_name), "{name}: {text}");
            }
        }
    }
}
