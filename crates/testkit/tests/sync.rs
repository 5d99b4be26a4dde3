//! Syncs as they should go: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "sync/answers.rs"]
mod answers;
#[path = "sync/bad.rs"]
mod bad;
#[path = "sync/bytes.rs"]
mod bytes;
#[path = "sync/failing.rs"]
mod failing;
#[path = "sync/flow.rs"]
mod flow;
#[path = "sync/forced.rs"]
mod forced;
#[path = "sync/halfway.rs"]
mod halfway;
#[path = "sync/lists.rs"]
mod lists;
#[path = "sync/outage.rs"]
mod outage;
#[path = "sync/pauses.rs"]
mod pauses;
#[path = "sync/ranges.rs"]
mod ranges;
#[path = "sync/rows.rs"]
mod rows;
#[path = "sync/rules.rs"]
mod rules;
#[path = "sync/scene.rs"]
mod scene;
#[path = "sync/scheduled.rs"]
mod scheduled;
#[path = "sync/slow.rs"]
mod slow;
#[path = "sync/vanish.rs"]
mod vanish;
#[path = "sync/waiting.rs"]
mod waiting;
#[path = "sync/weather.rs"]
mod weather;

/// Runs each case on both stores.
macro_rules! on_both {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod postgres {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() { super::$module::$case(Kind::Postgres).await; })+
        }
        mod sqlite {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() { super::$module::$case(Kind::Sqlite).await; })+
        }
    };
}

on_both! {
    answers::a_count_ahead_of_its_list_is_asked_again,
    answers::a_huge_retry_after_is_capped,
    answers::a_limit_is_never_counted_against_a_page,
    answers::a_single_bad_body_is_asked_again,
    answers::a_stone_that_comes_while_counting_again_is_stored,
    answers::an_error_that_mentions_a_token_is_no_refused_login,
    bad::a_count_that_is_too_low,
    bad::a_count_that_lies,
    bad::a_database_that_refuses_a_plan_is_no_success,
    bad::a_feed_that_cannot_be_scanned_fails_the_run,
    bad::a_feed_that_cannot_be_used_is_refused_whole,
    bad::a_page_that_repeats_for_ever,
    bad::html_while_paging,
    bad::pages_without_ids,
    bytes::a_batch_of_large_records_is_bounded_by_bytes,
    bytes::open_records_are_read_up_to_so_many_bytes,
    failing::a_page_that_was_taken_away_cannot_fail_its_partition,
    failing::the_database_refuses_arrows_that_do_not_exist,
    failing::a_lost_order_to_consolidate_is_given_anew,
    failing::a_restart_is_heard_while_a_retry_is_queued,
    failing::a_cancelled_sync_reads_as_failed_and_can_be_retried,
    failing::a_failed_sync_names_its_first_cause,
    failing::a_late_retry_of_the_run_is_refused_by_the_scheduler,
    failing::a_permanent_error_fails_once_and_a_retry_finishes_the_same_sync,
    failing::a_restart_reads_from_the_beginning,
    failing::a_retry_is_refused_once_a_newer_sync_is_completed,
    failing::a_run_ended_by_hand_ends_the_sync,
    failing::cancelling_the_run_cancels_the_sync,
    failing::what_a_failed_sync_stored_comes_in_with_the_next,
    flow::full_then_incremental_then_deleted,
    flow::incremental_syncs_go_where_nobody_runs_full_ones,
    flow::what_ended_long_ago_is_removed,
    forced::a_consolidation_that_keeps_failing_is_given_up_and_resumed,
    forced::a_full_sync_closes_every_gap,
    forced::an_order_is_refused_while_a_partition_is_open,
    forced::force_and_advance_leaves_gaps_that_the_next_sync_covers,
    forced::force_leaves_the_watermark,
    halfway::a_cancel_during_consolidation_stops_it,
    halfway::rules_applied_between_two_batches_stay,
    lists::a_list_of_one_record_without_an_id_is_read,
    lists::a_record_that_is_never_shown_is_missed,
    lists::a_stone_listed_twice_is_read_once_and_noted,
    lists::ids_with_spaces_are_ordinary_ids,
    lists::records_without_an_id_are_rejected_and_counted,
    outage::a_consolidator_that_waits_for_an_answer_ends,
    outage::a_probe_whose_process_ends_goes_to_the_next,
    outage::a_worker_ends_within_its_grace,
    outage::an_outage_at_the_lookup_holds_up_no_other_feed,
    outage::feeds_that_are_down_leave_room_for_others,
    outage::two_workers_share_a_rate,
    pauses::a_pause_of_the_other_lane_holds_no_sync,
    pauses::pages_outlive_a_long_pause,
    pauses::what_is_paused_is_not_planned,
    pauses::why_names_what_holds_the_pages,
    ranges::a_large_skewed_feed_is_divided_well,
    ranges::a_scan_asks_for_few_counts_at_a_time,
    ranges::empty_feed_completes_after_one_empty_page,
    ranges::every_stone_is_in_exactly_one_partition,
    ranges::fractions_of_a_dollar,
    ranges::one_stone,
    ranges::prices_on_a_boundary,
    rows::a_row_that_cannot_be_mapped,
    rows::a_row_that_is_what_it_was_is_no_longer_listed,
    rows::a_row_that_the_database_refuses,
    rows::a_row_with_a_nul_character,
    rows::media_changed_and_price_not,
    rows::the_same_stone_twice_in_one_page,
    rules::a_rule_edited_during_consolidation_mixes_no_prices,
    rules::apply_prices_anew_without_fetching,
    rules::rules_that_are_applied_twice_at_once_are_not_mixed,
    rules::prices_worked_out_on_paper,
    rules::the_first_rule_that_fits_decides,
    scheduled::a_full_schedule_finds_what_is_gone,
    slow::cancelled_sync_stops_reading_sold_stones,
    slow::changes_behind_a_count_of_nothing_are_read,
    slow::feed_without_a_date_misses_no_change,
    slow::full_sync_that_counts_nothing_raises_an_alert,
    slow::hanging_counts_leave_plans_to_other_feeds,
    slow::hanging_lookup_leaves_consolidation_to_other_feeds,
    slow::hanging_page_leaves_slots_to_other_feeds,
    slow::repeated_list_of_sold_stones_is_read_once,
    slow::watermark_in_the_future_is_refused,
    vanish::a_feed_without_lookup_needs_two_full_syncs,
    vanish::a_feed_that_does_not_tell_what_was_sold_is_synced,
    vanish::a_stone_that_was_only_missed_stays,
    vanish::beyond_the_limit_nothing_is_deleted,
    vanish::what_was_sold_is_deleted_by_an_incremental_sync,
    vanish::what_vanished_is_deleted_and_what_returns_is_active,
    waiting::a_full_sync_does_not_starve_another_feed,
    waiting::a_worker_that_leaves_ends_with_the_page_in_hand,
    waiting::a_role_that_is_drained_takes_no_page_until_it_is_told_otherwise,
    waiting::one_sync_of_a_feed_at_a_time,
    waiting::why_tells_what_a_sync_waits_for,
    weather::a_page_that_never_succeeds_fails_its_partition,
    weather::a_token_that_ends_is_renewed,
    weather::an_error_that_passes_leaves_the_partition_open,
    weather::an_outage_burns_no_delivery_and_needs_nobody,
    weather::an_outage_during_the_scan_is_waited_through,
    weather::an_outage_that_lasts_too_long_is_given_up,
}
