//! Syncs of sources that leave records out, change their fields, or answer nonsense: nothing is lost or overwritten.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "sync_trust/absence.rs"]
mod absence;
#[path = "sync_trust/answers.rs"]
mod answers;
#[path = "sync_trust/bad_records.rs"]
mod bad_records;
#[path = "sync_trust/columns.rs"]
mod columns;
#[path = "sync_trust/coverage.rs"]
mod coverage;
#[path = "sync_trust/deletes.rs"]
mod deletes;
#[path = "sync_trust/fixture.rs"]
mod fixture;
#[path = "sync_trust/formats.rs"]
mod formats;
#[path = "sync_trust/ledgers.rs"]
mod ledgers;
#[path = "sync_trust/locked_table.rs"]
mod locked_table;
#[path = "sync_trust/lookups.rs"]
mod lookups;
#[path = "sync_trust/moved_values.rs"]
mod moved_values;
#[path = "sync_trust/numbers.rs"]
mod numbers;
#[path = "sync_trust/refused_deletes.rs"]
mod refused_deletes;
#[path = "sync_trust/shared_tables.rs"]
mod shared_tables;
#[path = "sync_trust/slipping_source.rs"]
mod slipping_source;

tidemill_testkit::on_both! {
    worker_threads = 4;
    absence::record_that_slips_past_a_single_page_stays,
    absence::record_that_slips_past_page_numbers_stays,
    absence::record_that_slips_past_offsets_stays,
    absence::record_that_slips_past_a_cursor_stays,
    absence::record_that_slips_past_a_link_stays,
    absence::record_that_slips_past_a_cursor_in_a_header_stays,
    absence::record_that_slips_past_a_url_in_a_header_stays,
    absence::record_that_slips_past_a_link_in_a_header_stays,
    absence::record_that_slips_past_keys_stays,
    absence::record_that_slips_past_graphql_offsets_stays,
    absence::record_that_slips_past_a_graphql_connection_stays,
    absence::record_that_slips_past_a_recognised_list_stays,
    absence::changes_that_cancel_out_are_excluded_by_a_lookup_only,
    absence::kept_rows_are_named_with_the_missing_evidence,
    coverage::record_without_the_partition_field_fails_the_plan,
    coverage::value_that_is_not_listed_fails_the_plan,
    coverage::fraction_between_inclusive_boundaries_fails_the_plan,
    coverage::gap_that_opens_during_a_sync_deletes_nothing,
    coverage::covered_records_are_synced_and_deleted,
    coverage::uncounted_partitions_delete_only_what_a_lookup_confirms,
    coverage::growing_source_is_no_gap,
    columns::renamed_field_fails_the_sync_and_overwrites_nothing,
    columns::discard_row_rejects_records_without_the_field,
    columns::discard_value_keeps_the_old_value_and_writes_the_rest,
    columns::column_that_the_table_lacks_is_left_out,
    columns::optional_field_that_some_records_lose_is_emptied,
    columns::frozen_contract_fails_the_sync_with_the_value,
    columns::value_that_does_not_fit_is_discarded_as_the_contract_says,
    columns::new_field_of_inferred_columns_is_added_by_the_same_definition,
    bad_records::each_bad_record_is_rejected_alone,
    bad_records::duplicate_id_is_one_row,
    formats::cursor_of_each_format_finds_the_changes,
    formats::heatmap_of_times_covers_every_record,
    ledgers::records_rejected_by_the_reader_are_counted,
    ledgers::record_rejected_in_its_new_version_is_not_unchanged,
    ledgers::flagged_records_are_counted_as_deleted,
    ledgers::repeated_records_have_one_outcome_each,
    ledgers::partitions_are_summed_up_in_one_ledger,
    ledgers::appended_records_are_stored_or_unchanged,
    ledgers::ledger_difference_raises_an_alert,
    ledgers::ledger_difference_fails_every_test,
    locked_table::lock_of_some_seconds_delays_the_sync_alone,
    deletes::replaced_table_equals_the_list_even_if_it_is_empty,
    deletes::threshold_keeps_all_rows_until_it_allows_the_deletion,
    deletes::absence_deletes_nothing_if_it_is_switched_off,
    deletes::deleted_row_is_marked_until_its_record_returns,
    deletes::table_that_is_dropped_meanwhile_is_filled_by_the_next_sync,
    deletes::column_that_is_dropped_meanwhile_is_filled_by_the_next_sync,
    deletes::record_that_an_incremental_sync_read_is_missed_once,
    deletes::full_sync_with_failed_partitions_proves_no_absence,
    lookups::status_404_for_every_record_deletes_nothing,
    lookups::lookup_that_finds_nothing_deletes_nothing,
    lookups::malformed_lookup_deletes_nothing,
    numbers::change_behind_the_reader_is_not_lost,
    numbers::number_watermark_follows_the_previous_sync,
    numbers::restored_source_lowers_the_watermark,
    numbers::watermark_of_another_cursor_is_replaced,
    numbers::large_number_is_a_watermark,
    moved_values::values_of_a_nullable_column_swap_rows,
    moved_values::values_of_a_deferrable_constraint_swap_rows,
    moved_values::rebuild_writes_values_that_moved,
    moved_values::duplicate_value_stays_rejected_and_others_move,
    moved_values::duplicate_value_of_a_deferrable_constraint_stays_rejected,
    moved_values::required_column_is_rejected_with_the_statement_that_helps,
    moved_values::column_whose_changes_cascade_is_never_emptied,
    moved_values::value_of_a_vanished_record_is_free_after_its_deletion,
    moved_values::refused_record_that_left_the_source_gets_no_row,
    refused_deletes::foreign_key_keeps_its_row_and_no_other,
    refused_deletes::deferred_foreign_key_keeps_its_row_and_no_other,
    refused_deletes::record_with_a_kept_row_that_returns_is_accepted,
    refused_deletes::rows_that_refer_to_each_other_are_deleted,
    refused_deletes::flagged_record_with_a_foreign_key_is_rejected_alone,
    shared_tables::second_feed_of_a_table_is_refused,
    shared_tables::refusal_does_not_name_a_feed_of_another_project,
    shared_tables::feeds_with_different_constants_share_a_table,
    shared_tables::changed_definition_releases_its_table,
    shared_tables::sync_into_the_table_of_another_feed_fails,
    shared_tables::sync_that_loses_its_table_writes_no_row,
    shared_tables::one_of_two_simultaneous_feeds_gets_the_table,
    answers::html_fails_the_sync_and_loses_nothing,
    answers::invalid_json_fails_the_sync_and_loses_nothing,
    answers::deep_json_fails_the_sync_and_loses_nothing,
    answers::endless_answer_fails_the_sync_and_loses_nothing,
    answers::slow_answers_delay_the_sync_alone,
}
