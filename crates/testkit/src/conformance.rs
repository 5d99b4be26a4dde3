//! The cases that every door must pass: one list, run once per door, each time on a database of its own.
//!
//! A case is a function of a [`Stage`](crate::door::Stage), and its name is a sentence that is true. Names that begin
//! with `f` and a number are the field's known classes of failure. `conformance!` makes the tests.
#![expect(clippy::missing_panics_doc, reason = "a case panics when its door does not conform")]

pub mod answers;
pub mod artifacts;
pub mod by_hand;
pub mod cancelling;
pub mod carrying;
pub mod claiming;
pub mod draining;
pub mod events;
pub mod finishing;
pub mod guarding;
pub mod keeping;
pub mod keys;
pub mod pausing;
pub mod queueing;
pub mod reasons;
pub mod refusals;
pub mod retrying;
pub mod scheduling;
pub mod sharing;
pub mod stalling;
pub mod statistics;
pub mod sweeping;

use std::future::Future;
use std::sync::Arc;

use tidemill_core::RunId;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Runs as many tasks, all let go at the same instant; what each gave, in their order.
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

/// The id of a run that nobody has queued.
pub fn unknown_run() -> RunId {
    crate::door::new_run_id(crate::door::at(0))
}

/// Makes the tests of one door: every case as a test of its own.
#[macro_export]
macro_rules! conformance {
    ($kind:expr) => {
        $crate::topic! { $kind, claiming:
            each_run_is_claimed_once_by_workers_that_race,
            each_run_is_claimed_once_by_batches_beside_singles,
            the_highest_priority_comes_first_and_then_the_oldest,
            a_batch_takes_what_comes_first_of_all_shelves,
            f13_a_worker_gets_only_what_its_labels_offer,
            a_worker_claims_only_for_the_projects_that_it_names,
            a_claim_asked_again_gives_the_same_runs,
            the_same_request_at_the_same_instant_claims_once,
            two_workers_may_use_the_same_request_id,
            a_claim_asked_twice_at_one_instant_loses_no_run,
            a_claim_tells_the_worker_what_to_do,
            a_claim_of_nothing_is_empty_and_writes_nothing,
            a_batch_is_bounded,
            what_is_blocked_stands_in_nobodys_way,
        }
        $crate::topic! { $kind, queueing:
            a_run_is_kept_as_it_was_asked_for,
            sixteen_equal_requests_at_one_instant_make_one_run,
            one_of_sixteen_different_requests_with_one_key_wins,
            the_same_key_and_request_give_the_run_that_exists,
            the_same_key_with_another_request_is_refused,
            another_projects_key_is_no_obstacle,
            a_key_is_remembered_after_the_run_has_ended,
            a_queue_call_asked_again_with_its_run_id_gives_the_same_run,
            f14_a_key_does_not_block_the_retry,
            a_run_is_not_claimed_before_its_time,
            a_time_in_the_past_means_at_once,
            the_sweeper_opens_what_is_due,
            a_run_that_nobody_claims_in_time_expires,
        }
        $crate::topic! { $kind, keys:
            of_two_runs_with_one_key_the_second_waits,
            a_run_that_is_queued_twice_at_one_instant_keeps_its_key,
            a_key_belongs_to_its_project,
            a_batch_beside_a_held_key_loses_nothing,
            workers_that_race_never_hold_two_runs_of_one_key,
            the_key_goes_on_when_its_holder_succeeds,
            the_key_goes_on_when_its_holder_fails,
            the_key_goes_on_when_its_holder_is_cancelled,
            the_key_goes_on_when_its_holder_is_lost,
            the_key_goes_on_when_a_plain_statement_ends_its_holder,
            a_run_that_leaves_the_line_changes_nothing_for_the_others,
            a_head_that_is_cancelled_before_its_claim_makes_way,
            a_higher_priority_overtakes_a_head_that_nobody_claimed,
            a_higher_priority_does_not_overtake_a_head_that_is_held,
            a_successor_keeps_the_key_while_it_backs_off,
            a_successor_that_backs_off_gives_way_to_priority_and_cancel,
            a_run_of_the_future_does_not_hold_its_key,
            a_retry_stands_in_line_for_its_key,
        }
        $crate::topic! { $kind, events:
            the_first_event_starts_the_run,
            every_change_of_state_is_on_record,
            events_are_numbered_without_gaps,
            the_same_key_is_the_same_event,
            without_a_key_the_same_words_within_ten_seconds_are_one_event,
            another_level_message_or_payload_is_another_event,
            a_batch_of_events_keeps_its_order,
            a_record_is_read_from_its_end,
            an_event_is_kept_as_it_was_said,
            an_event_has_a_largest_size,
            an_event_renews_the_lease,
            an_event_that_is_known_is_answered_after_the_end,
            a_run_that_waits_takes_no_events,
        }
        $crate::topic! { $kind, finishing:
            a_report_ends_the_run_and_is_merged_into_its_metadata,
            a_claimed_run_that_is_finished_passes_through_running,
            a_run_that_waits_cannot_succeed_or_fail,
            a_finish_asked_again_is_a_duplicate_and_not_stale,
            f6_a_zombie_is_refused_once_on_record_and_changes_nothing,
            a_late_report_after_cancel_or_timeout_changes_nothing,
            only_the_holder_may_write,
            a_batch_of_reports_has_an_outcome_for_each,
            a_run_named_twice_in_one_batch_ends_once,
            of_many_reports_at_one_instant_one_counts,
            a_bad_report_is_refused_and_nothing_is_written,
            metadata_does_not_grow_beyond_its_bound,
        }
        $crate::topic! { $kind, retrying:
            a_failure_within_its_budget_is_followed_after_the_back_off,
            a_failure_without_a_budget_is_the_end,
            losses_and_failures_have_budgets_of_their_own,
            a_retry_is_made_once_however_often_it_is_asked_for,
            only_what_failed_or_was_cancelled_can_be_retried,
            a_retry_of_what_was_followed_gives_the_try_that_exists,
            a_retry_has_fresh_budgets,
        }
        $crate::topic! { $kind, cancelling:
            a_run_that_waits_is_cancelled_at_once,
            the_worker_of_a_held_run_is_asked_to_stop,
            a_cancel_asked_again_changes_nothing,
            sixteen_cancels_at_one_instant_are_one,
            after_the_grace_period_the_sweeper_ends_the_run,
            anybody_may_cancel_by_a_finish_from_any_live_state,
            f15_a_cancel_is_not_lost_while_a_try_backs_off,
            f15_a_cancel_is_not_lost_when_the_worker_is,
            a_report_after_a_cancel_request_counts_and_is_not_followed,
            what_ends_a_run_after_a_cancel_request_is_not_followed,
            events_are_taken_after_a_cancel_request,
        }
        $crate::topic! { $kind, sweeping:
            a_claimed_run_without_a_sign_of_life_is_cancelled_and_followed,
            f2_a_running_run_that_is_lost_fails_and_is_followed,
            f1_a_healthy_long_run_is_not_taken_away,
            f2_the_runs_of_a_dead_worker_are_followed_at_once,
            f3_a_reused_worker_name_hides_no_death,
            f10_a_beat_keeps_only_the_runs_it_names,
            f9_a_run_that_kills_its_workers_is_quarantined_with_its_last_lines,
            a_run_without_a_loss_budget_is_quarantined_at_once,
            a_run_that_takes_too_long_is_timed_out,
            a_registered_worker_has_time_to_report_its_timeout,
            what_has_expired_but_was_not_taken_is_still_valid,
            the_beat_and_the_claim_of_a_dead_worker_are_refused,
            the_runs_of_a_worker_that_said_goodbye_are_followed_at_no_cost,
            a_beat_never_goes_back_in_time,
            two_sweepers_at_one_instant_agree,
            sweeping_twice_changes_nothing,
            a_sweep_decides_also_what_its_own_ends_have_changed,
            a_sweep_is_bounded_and_goes_on_where_it_stopped,
            f5_a_report_and_a_sweep_at_one_instant_end_the_run_once,
            f4_a_fault_during_a_sweep_is_repaired_by_the_next,
        }
        $crate::topic! { $kind, stalling:
            a_silent_worker_that_promised_nothing_keeps_its_run,
            a_report_on_a_stalled_run_counts,
            an_event_brings_a_stalled_run_back_without_a_promise,
            a_heartbeat_brings_a_stalled_run_back_with_a_promise,
            a_stalled_run_is_failed_by_a_person,
            a_stalled_run_is_failed_and_followed_by_a_person,
            only_a_stalled_run_is_failed_by_a_person,
            a_claim_without_a_promise_is_cancelled_and_not_followed,
            a_silent_worker_that_promised_signs_of_life_loses_its_run,
            a_stalled_run_is_still_cancelled_and_timed_out,
        }
        $crate::topic! { $kind, refusals:
            an_unknown_project_or_environment_is_refused,
            an_unknown_run_is_refused_by_every_verb,
            a_request_out_of_range_is_refused,
            a_request_that_is_too_large_is_refused,
            a_request_at_its_bounds_is_taken,
        }
        $crate::topic! { $kind, artifacts:
            an_artifact_recorded_twice_is_one,
            the_artifacts_of_a_report_become_rows,
            artifacts_that_are_no_list_are_only_metadata,
            an_artifact_can_be_recorded_after_the_end,
            a_bad_artifact_is_refused,
        }
        $crate::topic! { $kind, by_hand:
            a_row_that_has_ended_cannot_be_changed,
            a_statement_cannot_make_a_step_that_does_not_exist,
            a_statement_cannot_turn_a_run_back,
            a_run_keeps_its_id_its_project_and_its_environment,
            a_statement_cannot_leave_a_run_in_two_states,
            events_cannot_be_changed_or_deleted,
            a_run_that_lives_cannot_be_deleted,
            the_seeds_plain_update_cancels_and_is_on_record,
            a_plain_update_is_completed,
            a_run_that_is_claimed_by_hand_has_a_lease,
            a_run_that_is_inserted_by_hand_is_claimed,
            a_statement_appends_an_event_and_the_verbs_count_on,
            the_sweeper_sees_times_that_a_statement_sets,
            the_number_of_events_does_not_go_down,
            a_run_is_listed_by_what_a_statement_says_of_it,
            a_request_that_is_refused_or_known_leaves_no_mark,
        }
        $crate::topic! { $kind, draining:
            a_worker_that_drains_gets_nothing_new,
            what_a_draining_worker_holds_goes_on,
            only_a_worker_that_lives_can_be_drained,
        }
        $crate::topic! { $kind, pausing:
            a_paused_project_gives_nothing_away,
            a_pause_ends_by_itself,
            a_paused_lane_holds_every_project,
            a_pause_holds_claims_and_nothing_else,
        }
    };
}

/// Makes the tests of what is only read, or done by the engine: they have no door of their own in SQL.
#[macro_export]
macro_rules! conformance_of_engine {
    ($kind:expr) => {
        $crate::topic! { $kind, scheduling:
            a_schedule_queues_its_request_when_it_is_due,
            a_change_of_the_clocks_neither_loses_nor_doubles_a_fire,
            missed_fires_are_made_up_for_as_the_policy_says,
            f19_a_fire_does_not_overlap_the_run_before_it,
            f19_schedulers_at_one_instant_fire_once,
            a_paused_schedule_fires_nothing,
            a_bad_schedule_is_refused_and_nothing_is_written,
            a_schedule_can_be_changed_and_removed,
        }
        $crate::topic! { $kind, keeping:
            what_ended_long_ago_goes_with_its_events_and_artifacts,
            a_run_with_many_events_goes_in_several_steps,
            upkeep_keeps_up_with_more_than_one_batch,
            workers_go_when_nothing_of_theirs_is_left,
        }
        $crate::topic! { $kind, carrying:
            a_run_whose_work_breaks_off_is_carried_on,
        }
        $crate::topic! { $kind, reasons:
            a_run_that_waits_has_a_reason,
            a_run_whose_workers_drain_has_a_reason,
            a_run_in_line_or_in_back_off_has_a_reason,
            a_run_in_line_says_why_its_head_waits,
            a_run_in_line_says_that_its_head_backs_off_or_is_stalled,
            a_stalled_run_has_a_reason,
            a_run_that_is_held_has_a_reason,
            a_run_that_is_over_has_a_reason,
        }
        $crate::topic! { $kind, sharing:
            processes_claim_each_run_once,
            processes_that_ask_for_the_same_thing_get_one_run,
            processes_that_sweep_at_one_instant_agree,
        }
        $crate::topic! { $kind, statistics:
            the_key_metrics_are_those_of_the_seed,
        }
    };
}

/// Makes the tests of what only PostgreSQL has.
#[macro_export]
macro_rules! conformance_of_postgres {
    ($kind:expr) => {
        $crate::topic! { $kind, guarding:
            f6_lease_guard_aborts_a_zombies_transaction,
            an_open_guard_holds_the_sweeper_off_and_not_the_heartbeat,
            a_cancel_by_finish_waits_for_an_open_guard,
            the_clock_of_one_host_an_hour_off_steals_nothing,
        }
    };
}

/// Makes the tests of what becomes of a lost answer: they need a connection that can be cut.
#[macro_export]
macro_rules! conformance_of_connections {
    ($kind:expr) => {
        $crate::topic! { $kind, answers:
            a_queue_call_whose_answer_was_lost_makes_one_run,
            a_claim_whose_answer_was_lost_gives_the_same_runs,
            what_a_worker_says_is_kept_once_though_its_answers_are_lost,
            a_report_whose_answer_was_lost_counts_once,
            what_a_person_asks_for_is_done_once_though_the_answer_is_lost,
            a_sweep_whose_answer_was_lost_is_not_done_twice,
            f19_a_fire_whose_answer_was_lost_is_not_fired_again,
        }
    };
}

/// Makes the tests of one topic on one door.
#[macro_export]
macro_rules! topic {
    ($kind:expr, $topic:ident: $($case:ident),+ $(,)?) => {
        mod $topic {
            $(
                #[tokio::test]
                async fn $case() {
                    let stage = $crate::door::Opens::open($kind).await;
                    $crate::conformance::$topic::$case(stage.clone()).await;
                    stage.close().await;
                }
            )+
        }
    };
}
