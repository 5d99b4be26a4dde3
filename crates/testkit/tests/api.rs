//! The HTTP door and its client: each noun's routes as they should go and as they fail, on each store.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "api/asking.rs"]
mod asking;
#[path = "api/bringing.rs"]
mod bringing;
#[path = "api/doorway.rs"]
mod doorway;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/keeping.rs"]
mod keeping;
#[path = "api/listing.rs"]
mod listing;
#[path = "api/naming.rs"]
mod naming;
#[path = "api/plans.rs"]
mod plans;
#[path = "api/scoped.rs"]
mod scoped;
#[path = "api/working.rs"]
mod working;

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
    asking::a_key_is_one_request_and_another_one_under_it_is_refused,
    asking::a_key_that_two_callers_use_at_once_is_one_rule,
    asking::a_key_is_forgotten_after_a_day,
    asking::every_fault_of_a_body_is_named_at_once,
    asking::every_fault_of_a_query_is_named_at_once,
    asking::unknown_project_is_refused_with_the_command_that_creates_it,
    asking::what_is_not_there_is_said_to_be_unknown,
    bringing::a_feed_is_added_looked_at_and_brought_in,
    bringing::stones_are_priced_some_at_a_time_from_any_place_on,
    bringing::a_failed_sync_is_looked_at_retried_and_consolidated,
    bringing::the_pace_of_a_sync_is_told_in_few_intervals,
    bringing::a_replay_for_a_failed_sync_names_the_retry,
    bringing::dead_letters_are_listed_page_by_page_and_replayed,
    bringing::rejects_and_gaps_are_listed_page_by_page,
    jobs::jobs_are_listed_by_state_page_by_page,
    jobs::jobs_that_agents_have_are_listed_to_those_who_may_see_them,
    jobs::the_end_of_what_a_job_wrote_is_read_without_the_rest,
    keeping::flags_are_switched_on_and_off,
    keeping::projects_are_made_listed_paused_and_resumed,
    keeping::rules_are_added_tried_imported_and_removed,
    keeping::schedules_are_kept_paused_resumed_and_removed,
    keeping::statistics_count_what_the_caller_sees,
    listing::each_filter_lists_what_fits_and_nothing_else,
    listing::filters_can_be_joined,
    listing::pages_lose_nothing_and_repeat_nothing_while_runs_are_added,
    listing::more_spellings_than_are_looked_up_one_by_one_are_listed_too,
    naming::a_name_can_be_joined_with_every_other_filter,
    naming::a_rare_and_a_frequent_name_are_found_by_an_index,
    naming::pages_of_a_name_lose_nothing_and_repeat_nothing,
    naming::the_beginning_of_a_name_finds_graphs_and_syncs_and_nothing_else,
    plans::each_filter_is_answered_from_an_index,
    scoped::a_caller_of_one_project_sees_nothing_of_another,
    scoped::what_is_foreign_reads_as_what_does_not_exist,
    scoped::what_is_own_is_found_behind_what_is_foreign_without_a_query_for_each,
    working::a_call_for_a_run_that_was_taken_away_is_told_where_the_run_is,
    working::a_claim_that_waits_ends_when_its_worker_is_drained,
    working::a_worker_is_drained_and_its_claims_say_why_they_are_empty,
    working::only_those_who_see_every_project_drain_a_worker_that_lives,
}
