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
        #[expect(non_camel_case_types, reason = "named as the statements are")]
        #[derive(Clone, Copy)]
        enum Number { $($name),+ }
        $(pub(crate) const $name: Statement = Statement(Number::$name as usize);)+
        const TEXTS: &[(&str, &str)] = &[$(catalog!(@pair $postgres $(, $sqlite)?)),+];

        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
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
    RUN_LIST_LANE = "run_list_lane.sql",
    RUN_LIST_FEED = "run_list_feed.sql",
    RUN_LIST_ENDED = "run_list_ended.sql",
    RUN_LIST_HELD = "run_list_held.sql",
    RUN_LIST_QUEUED = "run_list_queued.sql",
    RUN_LIST_ENV = "run_list_env.postgres.sql" | "run_list_env.sqlite.sql",
    RUN_LIST_SHA = "run_list_sha.postgres.sql" | "run_list_sha.sqlite.sql",
    RUN_LIST_REF = "run_list_ref.postgres.sql" | "run_list_ref.sqlite.sql",
    RUN_QUEUED_COUNT = "run_queued_count.sql",
    RUN_SHAS = "run_shas.sql",
    RUN_REFS = "run_refs.sql",
    RUN_SUCCESSOR = "run_successor.sql",
    EVENT_LIST = "event_list.sql",
    EVENT_TAIL = "event_tail.sql",
    EVENT_LAST = "event_last.sql",
    LIVE_POINT = "live_point.postgres.sql" | "live_point.sqlite.sql",
    LIVE_PAGE = "live_page.postgres.sql" | "live_page.sqlite.sql",
    ARTIFACT_LIST = "artifact_list.sql",
    PROJECT_CREATE = "project_create.sql",
    PROJECT_LIST = "project_list.sql",
    ENVIRONMENT_CREATE = "environment_create.sql",
    ENVIRONMENT_LIST = "environment_list.sql",
    ENVIRONMENT_IDS = "environment_ids.sql",
    REQUEST_KEY_TAKE = "request_key_take.sql",
    REQUEST_KEY_GET = "request_key_get.sql",
    REQUEST_KEY_ANSWER = "request_key_answer.sql",
    FLAG_SET = "flag_set.sql",
    FLAG_CLEAR = "flag_clear.sql",
    FLAG_LIST = "flag_list.sql",
    WORKER_LIST = "worker_list.sql",
    PRUNE_RUNS = "prune_runs.sql",
    PRUNE_EVENTS = "prune_events.sql",
    PRUNE_ARTIFACTS = "prune_artifacts.sql",
    PRUNE_WORKERS = "prune_workers.sql",
    PRUNE_FIRES = "prune_fires.sql",
    PRUNE_REQUEST_KEYS = "prune_request_keys.sql",
    WHY_KEY = "why_key.sql",
    WHY_AHEAD = "why_ahead.sql",
    WHY_WORKERS = "why_workers.postgres.sql" | "why_workers.sqlite.sql",
    WHY_BEAT = "why_beat.sql",
    WHY_LAST_EVENT = "why_last_event.sql",
    STATS_QUEUE = "stats_queue.postgres.sql" | "stats_queue.sqlite.sql",
    STATS_ACTIVE = "stats_active.sql",
    STATS_OUTCOMES = "stats_outcomes.sql",
    STATS_DURATIONS = "stats_durations.postgres.sql" | "stats_durations.sqlite.sql",
    STANDING_NOW = "standing_now.sql",
    SCHEDULE_PUT = "schedule_put.sql",
    SCHEDULE_LIST = "schedule_list.sql",
    SCHEDULE_REMOVE = "schedule_remove.sql",
    SCHEDULE_PAUSE = "schedule_pause.sql",
    SCHEDULE_DUE = "schedule_due.postgres.sql" | "schedule_due.sqlite.sql",
    SCHEDULE_ADVANCE = "schedule_advance.sql",
    FIRE_RECORD = "fire_record.sql",
    FIRE_LIST = "fire_list.sql",
    MESSAGE_SEND = "message_send.postgres.sql" | "message_send.sqlite.sql",
    MESSAGE_RECEIVE = "message_receive.postgres.sql" | "message_receive.sqlite.sql",
    MESSAGE_COMPLETE = "message_complete.postgres.sql" | "message_complete.sqlite.sql",
    MESSAGE_RENEW = "message_renew.postgres.sql" | "message_renew.sqlite.sql",
    MESSAGE_ABANDON = "message_abandon.sql",
    MESSAGE_KILL = "message_kill.sql",
    MESSAGE_RELEASE = "message_release.postgres.sql" | "message_release.sqlite.sql",
    MESSAGE_GET = "message_get.sql",
    MESSAGE_PEEK = "message_peek.sql",
    MESSAGE_DEAD = "message_dead.sql",
    MESSAGE_REPLAY_COPY = "message_replay_copy.sql",
    MESSAGE_REPLAY_DONE = "message_replay_done.sql",
    MESSAGE_DEPTH = "message_depth.sql",
    MESSAGE_EXPIRE = "message_expire.sql",
    MESSAGE_PURGE = "message_purge.sql",
    QUEUE_PUT = "queue_put.sql",
    QUEUE_LIST = "queue_list.sql",
    FEED_ADD = "feed_add.sql",
    FEED_LIST = "feed_list.sql",
    FEED_LOCK = "feed_lock.postgres.sql" | "feed_lock.sqlite.sql",
    FEED_WATERMARK = "feed_watermark.sql",
    FEED_CIRCUIT = "feed_circuit.sql",
    FEED_COPIED = "feed_copied.sql",
    WATERMARK_NOTE = "watermark_note.sql",
    WATERMARK_LIST = "watermark_list.sql",
    SYNC_INSERT = "sync_insert.sql",
    SYNC_GET = "sync_get.sql",
    SYNC_OF_RUN = "sync_of_run.sql",
    SYNC_LIST = "sync_list.sql",
    SYNC_LIVE = "sync_live.sql",
    SYNC_LOCK = "sync_lock.postgres.sql" | "sync_lock.sqlite.sql",
    SYNC_COUNT = "sync_count.sql",
    SYNC_COUNTED = "sync_counted.sql",
    SYNC_STATE = "sync_state.sql",
    SYNC_TRIGGER = "sync_trigger.sql",
    SYNC_CONSUME = "sync_consume.sql",
    SYNC_PROGRESS = "sync_progress.sql",
    SYNC_DELETE_NOTE = "sync_delete_note.sql",
    SYNC_COMPLETE = "sync_complete.sql",
    SYNC_RESUME = "sync_resume.sql",
    SYNC_NEWER = "sync_newer.sql",
    SYNC_OLD = "sync_old.sql",
    PRUNE_PAGES = "prune_pages.sql",
    PRUNE_WORKER_RUNS = "prune_worker_runs.sql",
    PRUNE_PARTITIONS = "prune_partitions.sql",
    PRUNE_SYNC = "prune_sync.sql",
    PARTITION_INSERT = "partition_insert.sql",
    PARTITION_GET = "partition_get.sql",
    PARTITION_LIST = "partition_list.sql",
    PARTITION_ADVANCE = "partition_advance.sql",
    PARTITION_END = "partition_end.sql",
    PARTITION_AGAIN = "partition_again.sql",
    PARTITION_RECEIVE = "partition_receive.sql",
    PARTITION_FAULT = "partition_fault.sql",
    PARTITION_FAIL = "partition_fail.sql",
    PARTITION_FAIL_OPEN = "partition_fail_open.sql",
    PARTITION_REOPEN = "partition_reopen.sql",
    PARTITION_RESTART = "partition_restart.sql",
    PARTITION_FORGET = "partition_forget.sql",
    PARTITION_OPEN = "partition_open.postgres.sql" | "partition_open.sqlite.sql",
    PARTITION_CONSOLIDATED = "partition_consolidated.sql",
    WORKER_RUN_BEGIN = "worker_run_begin.sql",
    WORKER_RUN_COUNT = "worker_run_count.sql",
    WORKER_RUN_END = "worker_run_end.sql",
    WORKER_RUN_END_ALL = "worker_run_end_all.sql",
    PAGE_STORE = "page_store.sql",
    PAGE_INSERT = "page_insert.sql",
    PAGE_LAST = "page_last.postgres.sql" | "page_last.sqlite.sql",
    PAGE_RANGE = "page_range.postgres.sql" | "page_range.sqlite.sql",
    PAGE_SEEN = "page_seen.postgres.sql" | "page_seen.sqlite.sql",
    RAW_UPSERT = "raw_upsert.postgres.sql" | "raw_upsert.sqlite.sql",
    STONE_OPEN = "stone_open.postgres.sql" | "stone_open.sqlite.sql",
    STONE_STALE = "stone_stale.sql",
    STONE_PROOF = "stone_proof.sql",
    STONE_UNSEEN = "stone_unseen.postgres.sql" | "stone_unseen.sqlite.sql",
    STONE_UNSEEN_COUNT = "stone_unseen_count.postgres.sql" | "stone_unseen_count.sqlite.sql",
    STONE_DELETE = "stone_delete.postgres.sql" | "stone_delete.sqlite.sql",
    STONE_MISSED = "stone_missed.sql",
    DIAMOND_UPSERT = "diamond_upsert.postgres.sql" | "diamond_upsert.sqlite.sql",
    RULE_LIST = "rule_list.postgres.sql" | "rule_list.sqlite.sql",
    RULE_ADD = "rule_add.postgres.sql" | "rule_add.sqlite.sql",
    RULE_REMOVE = "rule_remove.sql",
    RULE_SET_FIND = "rule_set_find.sql",
    RULE_SET_ADD = "rule_set_add.sql",
    RULE_SET_GET = "rule_set_get.sql",
    REJECT_PUT = "reject_put.sql",
    REJECT_LIST = "reject_list.sql",
    REJECT_CLEAR = "reject_clear.postgres.sql" | "reject_clear.sqlite.sql",
    GAP_ADD = "gap_add.sql",
    GAP_LIST = "gap_list.sql",
    GAP_CLOSE = "gap_close.sql",
    ALERT_ADD = "alert_add.sql",
    ALERT_RESOLVE = "alert_resolve.sql",
    ALERT_LASTING = "alert_lasting.sql",
    ALERT_LIST = "alert_list.sql",
    ALERT_UNSENT = "alert_unsent.sql",
    ALERT_SENT = "alert_sent.sql",
    ALERT_LOCK = "alert_lock.postgres.sql" | "alert_lock.sqlite.sql",
    NOTICE_TAKE = "notice_take.postgres.sql" | "notice_take.sqlite.sql",
    LOOK_DEAD = "look_dead.sql",
    LOOK_DEAD_SINCE = "look_dead_since.sql",
    LOOK_DEEP = "look_deep.sql",
    LOOK_STUCK = "look_stuck.sql",
    DELIVERY_LAST = "delivery_last.sql",
    DELIVERY_ADD = "delivery_add.sql",
    DELIVERY_CLAIM = "delivery_claim.postgres.sql" | "delivery_claim.sqlite.sql",
    DELIVERY_SENT = "delivery_sent.sql",
    DELIVERY_FAILED = "delivery_failed.sql",
    PRUNE_ALERTS = "prune_alerts.sql",
    PRUNE_DELIVERIES = "prune_deliveries.sql",
    HOOK_PUT = "hook_put.sql",
    HOOK_LIST = "hook_list.sql",
    HOOK_REMOVE = "hook_remove.sql",
    RUN_LANE = "run_lane.sql",
    RUN_LOCK = "run_lock.postgres.sql" | "run_lock.sqlite.sql",
    RUN_UNLEASE = "run_unlease.sql",
    RUN_TAKE = "run_take.sql",
    RUN_GO = "run_go.sql",
    SYNC_REBIND = "sync_rebind.sql",
    MESSAGE_OF_RUN = "message_of_run.sql",
    STONE_WAS_UNSEEN = "stone_was_unseen.postgres.sql" | "stone_was_unseen.sqlite.sql",
    RUN_END = "run_end.postgres.sql" | "run_end.sqlite.sql",
    TOKEN_LOCK = "token_lock.postgres.sql" | "token_lock.sqlite.sql",
    TOKEN_ADMINS = "token_admins.sql",
    TOKEN_ADD = "token_add.sql",
    TOKEN_LIST = "token_list.sql",
    TOKEN_GET = "token_get.sql",
    TOKEN_REVOKE = "token_revoke.sql",
    TOKEN_FIND = "token_find.sql",
    TOKEN_USE = "token_use.sql",
    SESSION_FIND = "session_find.sql",
    SESSION_USE = "session_use.sql",
    SESSION_ADD = "session_add.sql",
    SESSION_TRIM = "session_trim.sql",
    SESSION_REMOVE = "session_remove.sql",
    AUDIT_ADD = "audit_add.sql",
    AUDIT_LIST = "audit_list.sql",
    PRUNE_SESSIONS = "prune_sessions.sql",
    PRUNE_TOKENS = "prune_tokens.sql",
    PRUNE_AUDIT = "prune_audit.sql",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_has_its_own_number_and_no_name_is_left_unrendered() {
        assert_eq!(NAMES.len(), TEXTS.len());
        for schema in [Schema::postgres("ops").unwrap(), Schema::sqlite()] {
            for (name, text) in NAMES.iter().zip(&Catalog::new(&schema).0) {
                for part in ["{ops}", "{sync}", "{now}"] {
                    assert!(!text.contains(part), "{name}: {text}");
                }
            }
        }
    }
}
