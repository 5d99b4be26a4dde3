//! Syncs of feeds that a definition file describes, on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "sync_definitions/contradictions.rs"]
mod contradictions;
#[path = "sync_definitions/feed_failures.rs"]
mod feed_failures;
#[path = "sync_definitions/paginations.rs"]
mod paginations;
#[path = "sync_definitions/tables.rs"]
mod tables;

tidemill_testkit::on_both! {
    worker_threads = 4;
    paginations::single_page_equals_the_source,
    paginations::page_number_equals_the_source,
    paginations::offset_equals_the_source,
    paginations::cursor_equals_the_source,
    paginations::json_link_equals_the_source,
    paginations::header_cursor_equals_the_source,
    paginations::header_url_equals_the_source,
    paginations::header_link_equals_the_source,
    paginations::keyset_equals_the_source,
    paginations::graphql_offset_equals_the_source,
    paginations::graphql_connection_equals_the_source,
    contradictions::flag_that_always_promises_more_fails_the_sync,
    contradictions::empty_page_in_the_middle_loses_nothing,
    contradictions::small_page_that_repeats_fails_the_sync,
    tables::dropped_table_fails_the_sync_and_is_filled_again,
    tables::row_that_the_table_refuses_is_rejected_alone,
    tables::append_keeps_every_version_once,
    tables::changed_definition_ends_a_running_sync,
}

tidemill_testkit::on_rest! {
    contradictions::cursor_that_does_not_move_fails_the_sync, except [PageNumber, Offset, GraphqlOffset];
    contradictions::page_that_repeats_fails_the_sync, except [];
    contradictions::count_that_stays_too_high_fails_the_sync, except [];
    contradictions::ignored_filter_of_changes_is_harmless, except [];
    feed_failures::single_failures_are_retried, except [];
    feed_failures::outage_during_a_sync_is_waited_out, except [];
    feed_failures::short_pages_lose_nothing, except [PageNumber];
}
