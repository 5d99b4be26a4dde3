//! Syncs: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "sync/bad_input.rs"]
mod bad_input;
#[path = "sync/failed_syncs.rs"]
mod failed_syncs;
#[path = "sync/feed_recovery.rs"]
mod feed_recovery;
#[path = "sync/feed_responses.rs"]
mod feed_responses;
#[path = "sync/fixture.rs"]
mod fixture;
#[path = "sync/forced_consolidation.rs"]
mod forced_consolidation;
#[path = "sync/interrupted_consolidation.rs"]
mod interrupted_consolidation;
#[path = "sync/irregular_lists.rs"]
mod irregular_lists;
#[path = "sync/large_records.rs"]
mod large_records;
#[path = "sync/ledgers.rs"]
mod ledgers;
#[path = "sync/outage.rs"]
mod outage;
#[path = "sync/partitions.rs"]
mod partitions;
#[path = "sync/pauses.rs"]
mod pauses;
#[path = "sync/pipeline.rs"]
mod pipeline;
#[path = "sync/records.rs"]
mod records;
#[path = "sync/rules.rs"]
mod rules;
#[path = "sync/schedules.rs"]
mod schedules;
#[path = "sync/slow_feeds.rs"]
mod slow_feeds;
#[path = "sync/vanished_records.rs"]
mod vanished_records;
#[path = "sync/wait_reasons.rs"]
mod wait_reasons;

tidemill_testkit::on_both! {
    worker_threads = 4;
    feed_responses::count_ahead_of_its_list_is_repeated,
    feed_responses::huge_retry_after_is_capped,
    feed_responses::rate_limit_is_not_counted_as_a_page_failure,
    feed_responses::single_unreadable_body_is_retried,
    feed_responses::record_added_during_a_recount_is_stored,
    feed_responses::error_mentioning_a_token_is_not_a_login_failure,
    bad_input::too_low_count_reads_every_record,
    bad_input::wrong_count_fails_its_partition,
    bad_input::plan_refused_by_the_database_fails_the_run,
    bad_input::feed_that_cannot_be_scanned_fails_the_run,
    bad_input::invalid_feed_is_refused_completely,
    bad_input::endlessly_repeated_page_fails_its_partition,
    bad_input::html_page_fails_its_partition,
    bad_input::page_without_ids_fails_its_partition,
    ledgers::retried_sync_lists_each_record_once,
    ledgers::retry_after_forced_consolidation_adds_to_the_ledger,
    ledgers::incremental_sync_lists_the_changes_only,
    ledgers::restart_forgets_the_rejects_of_the_first_reading,
    large_records::batch_of_large_records_is_limited_by_bytes,
    large_records::open_records_are_read_up_to_a_byte_limit,
    failed_syncs::stale_page_cannot_fail_its_partition,
    failed_syncs::transitions_outside_the_diagram_are_refused,
    failed_syncs::lost_consolidation_message_is_sent_again,
    failed_syncs::restart_request_applies_to_a_queued_retry,
    failed_syncs::cancelled_sync_is_failed_and_can_be_retried,
    failed_syncs::failed_sync_reports_its_first_cause,
    failed_syncs::sync_run_naming_a_feed_of_another_project_fails,
    failed_syncs::scheduler_refuses_a_late_retry_of_the_run,
    failed_syncs::retry_after_permanent_error_finishes_the_same_sync,
    failed_syncs::restarted_partition_reads_from_the_start,
    failed_syncs::retry_after_a_newer_completed_sync_is_refused,
    failed_syncs::run_ended_by_plain_sql_ends_the_sync,
    failed_syncs::cancel_of_the_run_cancels_the_sync,
    failed_syncs::records_of_a_failed_sync_are_consolidated_by_the_next,
    pipeline::full_and_incremental_syncs_update_and_delete,
    pipeline::incremental_sync_without_recent_full_sync_completes,
    pipeline::old_syncs_are_pruned,
    forced_consolidation::repeatedly_failing_consolidation_fails_and_can_resume,
    forced_consolidation::full_sync_closes_every_gap,
    forced_consolidation::consolidation_with_an_open_partition_is_refused,
    forced_consolidation::forced_advance_leaves_gaps_that_the_next_sync_covers,
    forced_consolidation::forced_consolidation_keeps_the_watermark,
    interrupted_consolidation::cancel_during_consolidation_stops_it,
    interrupted_consolidation::rules_applied_between_batches_hold,
    irregular_lists::list_of_one_record_without_id_is_read,
    irregular_lists::record_that_is_never_listed_is_missing,
    irregular_lists::record_listed_twice_is_read_once_with_a_warning,
    irregular_lists::ids_with_spaces_are_accepted,
    irregular_lists::records_without_id_are_rejected_and_counted,
    outage::consolidator_waiting_for_a_feed_shuts_down,
    outage::probe_of_an_ended_process_passes_to_the_next,
    outage::worker_shuts_down_within_its_grace_period,
    outage::outage_during_lookup_delays_no_other_feed,
    outage::unavailable_feeds_leave_capacity_for_others,
    outage::two_workers_share_a_rate_limit,
    pauses::pause_of_another_lane_blocks_no_sync,
    pauses::pages_survive_a_long_pause,
    pauses::paused_sync_is_not_planned,
    pauses::paused_runs_of_one_project_delay_no_other,
    pauses::why_names_the_pause_of_pages,
    partitions::large_skewed_feed_is_partitioned_evenly,
    partitions::scan_limits_concurrent_count_requests,
    partitions::empty_feed_completes_after_one_empty_page,
    partitions::every_record_belongs_to_exactly_one_partition,
    partitions::prices_with_cents_are_read_once,
    partitions::feed_with_one_record_completes,
    partitions::prices_on_a_partition_boundary_are_read_once,
    records::unmappable_record_is_rejected_until_fixed,
    records::reverted_record_is_removed_from_the_rejects,
    records::record_refused_by_the_database_is_rejected,
    records::record_with_nul_character_is_rejected_until_fixed,
    records::changed_media_with_equal_price_is_updated,
    records::record_twice_in_one_page_is_stored_once,
    rules::rule_edit_during_consolidation_mixes_no_prices,
    rules::apply_reprices_without_fetching,
    rules::concurrent_rule_applications_mix_no_prices,
    rules::prices_match_manual_calculation,
    rules::first_matching_rule_sets_the_price,
    schedules::full_schedule_detects_removed_records,
    slow_feeds::cancelled_sync_stops_reading_sold_records,
    slow_feeds::changes_behind_a_count_of_nothing_are_read,
    slow_feeds::feed_without_a_date_misses_no_change,
    slow_feeds::full_sync_that_counts_nothing_raises_an_alert,
    slow_feeds::hanging_counts_leave_plans_to_other_feeds,
    slow_feeds::hanging_lookup_leaves_consolidation_to_other_feeds,
    slow_feeds::hanging_page_leaves_slots_to_other_feeds,
    slow_feeds::repeated_list_of_sold_records_is_read_once,
    slow_feeds::watermark_in_the_future_is_refused,
    vanished_records::feed_without_lookup_deletes_after_two_full_syncs,
    vanished_records::feed_without_sold_list_is_synced,
    vanished_records::missed_record_that_still_exists_stays_active,
    vanished_records::deletions_over_the_limit_are_skipped,
    vanished_records::incremental_sync_deletes_sold_records,
    vanished_records::vanished_record_is_deleted_and_returned_record_is_active,
    wait_reasons::full_sync_does_not_starve_another_feed,
    wait_reasons::stopping_worker_ends_after_its_current_page,
    wait_reasons::drained_role_takes_no_page_until_it_is_undrained,
    wait_reasons::syncs_of_a_feed_run_one_at_a_time,
    wait_reasons::why_explains_every_wait_of_a_sync,
    feed_recovery::page_that_never_succeeds_fails_its_partition,
    feed_recovery::expired_token_is_renewed,
    feed_recovery::transient_error_leaves_the_partition_open,
    feed_recovery::outage_counts_no_delivery_and_recovers_alone,
    feed_recovery::outage_during_the_scan_is_waited_for,
    feed_recovery::too_long_outage_fails_the_sync,
}
