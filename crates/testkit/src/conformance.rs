//! The conformance cases: one list, run once per interface, each case on a database of its own.
//!
//! A case is a function of a [`Fixture`](crate::interface::Fixture). Names that begin with `f` and a number are known
//! classes of failure of job queues. `conformance!` makes the tests.
#![expect(clippy::missing_panics_doc, reason = "a case panics when its interface does not conform")]

pub mod artifacts;
pub mod cancel;
pub mod claim;
pub mod concurrency_keys;
pub mod drain;
pub mod events;
pub mod executor;
pub mod finish;
pub mod kinds;
pub mod lease_guard;
pub mod lost_responses;
pub mod manual_cancel;
pub mod pause;
pub mod plain_sql;
pub mod processes;
pub mod queue;
pub mod queue_many;
pub mod refusals;
pub mod retention;
pub mod retry;
pub mod run_ids;
pub mod schedules;
pub mod stalled_runs;
pub mod statistics;
pub mod sweep;
pub mod wait_reasons;

use std::future::Future;
use std::sync::Arc;

use tidemill_core::RunId;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Runs `count` tasks that start at the same instant; returns their results in order.
pub async fn at_once<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let gate = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (gate, work) = (gate.clone(), task(number));
        tasks.spawn(async move {
            gate.wait().await;
            (number, work.await)
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the id of a run that does not exist.
pub fn unknown_run() -> RunId {
    crate::interface::new_run_id(crate::interface::at(0))
}

/// Makes the tests of one interface, one per case.
#[macro_export]
macro_rules! conformance {
    ($kind:expr) => {
        $crate::topic! { $kind, claim:
            racing_workers_claim_each_run_once,
            racing_batches_and_single_claims_claim_each_run_once,
            claims_are_ordered_by_priority_then_age,
            batch_claim_merges_all_label_sets_in_order,
            f13_worker_claims_only_runs_that_match_its_labels,
            worker_claims_only_runs_of_its_projects,
            repeated_claim_returns_the_same_runs,
            simultaneous_equal_claim_requests_claim_once,
            claim_request_id_is_scoped_to_its_worker,
            simultaneous_repeated_claims_lose_no_run,
            claim_returns_the_request_of_the_run,
            empty_claim_writes_nothing,
            claim_batch_is_limited,
            blocked_runs_do_not_block_other_claims,
        }
        $crate::topic! { $kind, queue_many:
            batch_equals_its_requests_one_by_one,
            repeated_batch_creates_nothing,
            bad_element_refuses_the_whole_batch,
            simultaneous_batches_with_the_same_keys_make_each_run_once,
            batch_is_limited,
            runs_of_a_batch_are_claimed_in_its_order,
        }
        $crate::topic! { $kind, queue:
            queued_run_stores_its_request_unchanged,
            simultaneous_equal_requests_make_one_run,
            simultaneous_different_requests_with_one_key_make_one_run,
            repeated_request_with_its_key_returns_the_existing_run,
            different_request_with_a_used_key_is_refused,
            idempotency_key_is_scoped_to_its_project,
            idempotency_key_outlives_the_end_of_its_run,
            repeated_request_with_its_run_id_returns_the_same_run,
            f14_idempotency_key_does_not_block_the_retry,
            delayed_run_is_not_claimed_before_its_time,
            run_with_a_past_start_time_is_claimable_at_once,
            sweeper_opens_due_runs,
            unclaimed_run_expires,
        }
        $crate::topic! { $kind, kinds:
            kind_is_claimed_listed_and_kept_by_successors,
            runs_of_a_batch_have_their_own_kinds,
            invalid_kind_is_refused,
            idempotency_key_with_another_kind_is_refused,
            kind_changed_by_plain_sql_is_listed_by_its_new_value,
        }
        $crate::topic! { $kind, concurrency_keys:
            second_run_of_a_key_waits,
            run_queued_twice_at_once_keeps_its_key,
            concurrency_key_is_scoped_to_its_project,
            batch_claim_next_to_a_held_key_loses_no_run,
            racing_workers_never_hold_two_runs_of_a_key,
            key_passes_on_when_its_holder_succeeds,
            key_passes_on_when_its_holder_fails,
            key_passes_on_when_its_holder_is_cancelled,
            key_passes_on_when_its_holder_is_lost,
            key_passes_on_when_plain_sql_ends_its_holder,
            cancelled_waiting_run_leaves_the_key_order_unchanged,
            cancelled_unclaimed_head_passes_the_key_on,
            higher_priority_replaces_an_unclaimed_head,
            higher_priority_does_not_replace_a_held_head,
            retry_keeps_the_key_during_its_backoff,
            retry_in_backoff_yields_the_key_to_priority_and_cancel,
            delayed_run_does_not_hold_its_key,
            retry_by_a_person_waits_for_its_key,
        }
        $crate::topic! { $kind, events:
            first_event_starts_the_run,
            every_state_change_is_an_event,
            event_numbers_have_no_gaps,
            repeated_event_key_is_stored_once,
            equal_events_without_key_within_ten_seconds_are_one,
            different_level_message_or_payload_is_a_new_event,
            event_batch_keeps_its_order,
            events_are_read_from_the_end,
            event_is_stored_unchanged,
            event_over_the_size_limit_is_refused,
            event_renews_the_lease,
            repeated_event_is_answered_after_the_end,
            queued_run_accepts_no_events,
            events_of_every_verb_are_readable_after_its_commit,
            late_log_line_keeps_the_numbers_of_earlier_events,
        }
        $crate::topic! { $kind, finish:
            finish_ends_the_run_and_merges_its_metadata,
            finished_claimed_run_passes_through_running,
            queued_run_cannot_succeed_or_fail,
            repeated_finish_is_a_duplicate,
            f6_a_zombie_is_refused_once_on_record_and_changes_nothing,
            late_report_after_cancel_or_timeout_changes_nothing,
            only_the_holder_may_write,
            batch_finish_returns_one_outcome_per_run,
            run_named_twice_in_a_batch_ends_once,
            simultaneous_reports_count_once,
            invalid_report_is_refused_and_writes_nothing,
            metadata_over_the_size_limit_is_refused,
        }
        $crate::topic! { $kind, retry:
            failed_run_within_its_budget_is_retried_after_backoff,
            failed_run_without_budget_is_not_retried,
            losses_and_failures_have_separate_budgets,
            repeated_retry_makes_one_run,
            only_failed_or_cancelled_runs_can_be_retried,
            retry_of_a_retried_run_returns_its_successor,
            retry_by_a_person_has_fresh_budgets,
        }
        $crate::topic! { $kind, cancel:
            queued_run_is_cancelled_at_once,
            cancel_of_held_run_requests_a_stop,
            repeated_cancel_changes_nothing,
            simultaneous_cancels_count_once,
            sweeper_ends_cancelled_run_after_the_grace_period,
            f15_cancel_during_backoff_is_not_lost,
            f15_cancel_survives_the_loss_of_the_worker,
            report_after_cancel_request_counts_without_a_retry,
            run_ended_after_cancel_request_is_not_retried,
            events_are_accepted_after_a_cancel_request,
        }
        $crate::topic! { $kind, sweep:
            silent_claimed_run_is_cancelled_and_retried,
            f2_lost_running_run_fails_and_is_retried,
            f1_healthy_long_run_keeps_its_lease,
            f2_runs_of_a_dead_worker_are_retried_at_once,
            f3_reused_worker_name_does_not_hide_a_death,
            f10_heartbeat_renews_only_the_runs_it_names,
            f9_run_that_kills_its_workers_is_quarantined_with_its_events,
            lost_run_without_loss_budget_is_quarantined_at_once,
            run_over_its_timeout_is_timed_out,
            registered_worker_can_report_its_timeout_first,
            expired_lease_is_valid_until_it_is_taken,
            heartbeat_and_claim_of_a_dead_worker_are_refused,
            retired_worker_runs_are_retried_without_charging_the_budget,
            heartbeat_time_never_decreases,
            simultaneous_sweepers_agree,
            second_sweep_changes_nothing,
            sweep_handles_runs_opened_by_its_own_decisions,
            limited_sweep_continues_where_it_stopped,
            f5_simultaneous_report_and_sweep_end_the_run_once,
            f4_interrupted_sweep_is_repaired_by_the_next,
        }
        $crate::topic! { $kind, stalled_runs:
            silent_worker_without_heartbeats_keeps_its_run,
            report_on_a_stalled_run_counts,
            event_revives_a_stalled_run_without_heartbeats,
            heartbeat_revives_a_stalled_run_with_heartbeats,
            stalled_run_can_be_failed,
            stalled_run_can_be_failed_with_a_retry,
            fail_of_a_run_that_is_not_stalled_is_refused,
            silent_claim_without_heartbeats_is_cancelled_without_retry,
            silent_worker_with_heartbeats_loses_its_run,
            stalled_run_can_be_cancelled_and_times_out,
        }
        $crate::topic! { $kind, refusals:
            unknown_project_or_environment_is_refused,
            unknown_run_is_refused_by_every_operation,
            request_out_of_range_is_refused,
            request_over_a_size_limit_is_refused,
            short_text_with_a_control_character_is_refused,
            request_at_its_limits_is_accepted,
        }
        $crate::topic! { $kind, artifacts:
            artifact_recorded_twice_is_stored_once,
            artifacts_in_a_report_become_rows,
            artifacts_that_are_not_a_list_stay_metadata,
            artifact_is_accepted_after_the_run_ended,
            invalid_artifact_is_refused,
        }
        $crate::topic! { $kind, plain_sql:
            ended_run_cannot_be_changed,
            plain_update_to_an_illegal_state_is_refused,
            plain_update_to_an_earlier_state_is_refused,
            run_id_project_and_environment_cannot_be_changed,
            plain_update_with_contradicting_columns_is_refused,
            events_cannot_be_changed_or_deleted,
            live_run_cannot_be_deleted,
            plain_update_of_the_seed_cancels_and_records_an_event,
            plain_update_is_completed_by_the_trigger,
            run_claimed_by_plain_sql_has_a_lease,
            run_inserted_by_plain_sql_is_claimed,
            event_inserted_by_plain_sql_continues_the_numbering,
            event_of_an_unknown_run_is_refused,
            sweeper_obeys_times_set_by_plain_sql,
            event_counter_cannot_be_decreased,
            run_changed_by_plain_sql_is_listed_by_its_new_values,
            refused_or_repeated_request_leaves_no_run_mark,
        }
        $crate::topic! { $kind, drain:
            draining_worker_claims_nothing,
            draining_worker_keeps_its_runs,
            drain_of_ended_or_unknown_worker_is_refused,
        }
        $crate::topic! { $kind, pause:
            paused_project_gives_no_claims,
            pause_ends_at_its_end_time,
            paused_lane_blocks_every_project,
            pause_blocks_only_claims,
        }
    };
}

/// Makes the tests of operations that only callers of the database have.
#[macro_export]
macro_rules! conformance_of_databases {
    ($kind:expr) => {
        $crate::topic! { $kind, manual_cancel:
            finish_as_cancelled_is_accepted_in_any_live_state,
        }
    };
}

/// Makes the tests of reads and of engine features, which have no SQL functions.
#[macro_export]
macro_rules! conformance_of_engine {
    ($kind:expr) => {
        $crate::topic! { $kind, schedules:
            due_schedule_queues_its_request,
            daylight_saving_change_neither_loses_nor_doubles_a_fire,
            missed_fires_follow_the_policy,
            f19_fire_does_not_overlap_the_previous_run,
            f19_simultaneous_schedulers_fire_once,
            paused_schedule_does_not_fire,
            invalid_schedule_is_refused_and_writes_nothing,
            schedule_can_be_changed_and_removed,
        }
        $crate::topic! { $kind, retention:
            prune_deletes_old_runs_with_their_events_and_artifacts,
            prune_deletes_a_run_with_many_events_in_several_batches,
            id_of_a_removed_run_is_refused_while_it_has_events,
            upkeep_prunes_more_than_one_batch,
            prune_deletes_workers_without_runs,
        }
        $crate::topic! { $kind, run_ids:
            runs_with_chosen_ids_are_claimed_oldest_first,
            runs_with_chosen_ids_are_pruned_by_their_end_time,
            imported_runs_are_pruned_by_their_end_time,
            runs_with_chosen_ids_are_counted_by_statistics,
            runs_with_chosen_ids_are_filtered_by_time,
            pages_of_runs_with_chosen_ids_lose_and_repeat_nothing,
            chosen_id_of_a_removed_run_is_refused_while_it_has_events,
            created_at_of_a_run_cannot_change,
        }
        $crate::topic! { $kind, executor:
            run_of_a_panicking_executor_is_retried,
        }
        $crate::topic! { $kind, wait_reasons:
            queued_run_has_a_reason,
            run_with_only_draining_workers_has_a_reason,
            run_waiting_for_its_key_or_backoff_has_a_reason,
            run_waiting_for_its_key_explains_the_wait_of_the_head,
            run_waiting_for_its_key_reports_a_stalled_or_delayed_head,
            stalled_run_has_a_reason,
            held_run_has_a_reason,
            ended_run_has_a_reason,
        }
        $crate::topic! { $kind, processes:
            several_processes_claim_each_run_once,
            equal_requests_of_several_processes_make_one_run,
            simultaneous_sweeps_of_several_processes_agree,
        }
        $crate::topic! { $kind, statistics:
            key_metrics_match_the_seed,
        }
    };
}

/// Makes the tests of features that only PostgreSQL has.
#[macro_export]
macro_rules! conformance_of_postgres {
    ($kind:expr) => {
        $crate::topic! { $kind, lease_guard:
            f6_lease_guard_aborts_the_transaction_of_a_zombie,
            open_guard_blocks_the_sweeper_but_not_the_heartbeat,
            cancel_by_finish_waits_for_an_open_guard,
            host_clock_an_hour_ahead_steals_no_run,
        }
    };
}

/// Makes the tests of lost answers, which need a connection that can be cut.
#[macro_export]
macro_rules! conformance_of_connections {
    ($kind:expr) => {
        $crate::topic! { $kind, lost_responses:
            repeated_queue_call_after_lost_answer_makes_one_run,
            repeated_claim_after_lost_answer_returns_the_same_runs,
            events_and_artifacts_are_stored_once_despite_lost_answers,
            report_with_lost_answer_counts_once,
            cancel_and_retry_with_lost_answers_happen_once,
            sweep_with_lost_answer_is_not_repeated,
            f19_fire_with_lost_answer_fires_once,
        }
    };
}

/// Makes the tests of one topic on one interface.
#[macro_export]
macro_rules! topic {
    ($kind:expr, $topic:ident: $($case:ident),+ $(,)?) => {
        mod $topic {
            $(
                #[tokio::test]
                async fn $case() {
                    let fixture = $crate::interface::OpenFixture::open($kind).await;
                    $crate::conformance::$topic::$case(fixture.clone()).await;
                    fixture.close().await;
                }
            )+
        }
    };
}
