//! The HTTP API and its client: the routes of each resource with valid and invalid requests, on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "api/definitions.rs"]
mod definitions;
#[path = "api/fixture.rs"]
mod fixture;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/name_prefix.rs"]
mod name_prefix;
#[path = "api/project_scope.rs"]
mod project_scope;
#[path = "api/query_plans.rs"]
mod query_plans;
#[path = "api/requests.rs"]
mod requests;
#[path = "api/run_lists.rs"]
mod run_lists;
#[path = "api/settings.rs"]
mod settings;
#[path = "api/syncs.rs"]
mod syncs;
#[path = "api/workers.rs"]
mod workers;

tidemill_testkit::on_both! {
    worker_threads = 4;
    requests::idempotency_key_refuses_a_different_request,
    requests::concurrent_requests_with_one_key_make_one_rule,
    requests::idempotency_key_expires_after_a_day,
    requests::all_errors_of_a_body_are_reported_together,
    requests::all_errors_of_a_query_are_reported_together,
    requests::unknown_project_is_refused_with_the_command_that_creates_it,
    requests::missing_items_are_reported_as_unknown,
    syncs::feed_is_added_shown_and_synced,
    syncs::outcomes_of_listed_records_are_shown,
    syncs::repricing_runs_in_batches_from_any_offset,
    syncs::failed_sync_is_shown_retried_and_consolidated,
    syncs::sync_pace_is_returned_in_few_intervals,
    syncs::replay_for_a_failed_sync_hints_at_the_retry,
    syncs::dead_letters_are_listed_in_pages_and_replayed,
    syncs::rejects_and_gaps_are_listed_in_pages,
    definitions::definition_is_stored_and_its_table_is_created,
    definitions::errors_of_a_definition_have_positions,
    definitions::feed_has_a_definition_or_settings_of_its_own,
    jobs::jobs_are_listed_by_state_in_pages,
    jobs::held_jobs_are_listed_to_permitted_callers_only,
    jobs::job_log_tail_is_read_without_the_rest,
    settings::flags_are_set_and_cleared,
    settings::projects_are_created_listed_paused_and_resumed,
    settings::rules_are_added_tested_imported_and_removed,
    settings::schedules_are_stored_paused_resumed_and_removed,
    settings::statistics_count_only_visible_runs,
    run_lists::every_filter_lists_exactly_the_matching_runs,
    run_lists::filters_can_be_combined,
    run_lists::pages_lose_and_repeat_nothing_while_runs_are_added,
    run_lists::many_spellings_of_a_filter_value_are_all_listed,
    name_prefix::name_prefix_combines_with_every_other_filter,
    name_prefix::rare_and_frequent_names_use_an_index,
    name_prefix::pages_by_name_prefix_lose_and_repeat_nothing,
    name_prefix::name_prefix_finds_only_matching_graphs_and_syncs,
    query_plans::every_filter_uses_an_index,
    project_scope::project_caller_sees_nothing_of_another_project,
    project_scope::foreign_items_answer_like_unknown_ones,
    project_scope::own_items_behind_foreign_ones_are_found_in_few_queries,
    workers::stale_call_reports_the_current_state_of_the_run,
    workers::waiting_claim_ends_when_its_worker_is_drained,
    workers::drained_worker_gets_empty_claims_with_the_reason,
    workers::drain_requires_a_live_worker_and_access_to_all_projects,
}
