//! Graphs: one list of cases, run on each store, with scripted agents and a clock that the test moves.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "graph/agents.rs"]
mod agents;
#[path = "graph/cancel.rs"]
mod cancel;
#[path = "graph/capacity.rs"]
mod capacity;
#[path = "graph/controllers.rs"]
mod controllers;
#[path = "graph/fixture.rs"]
mod fixture;
#[path = "graph/flags.rs"]
mod flags;
#[path = "graph/graph_run.rs"]
mod graph_run;
#[path = "graph/placement.rs"]
mod placement;
#[path = "graph/random_sequences.rs"]
mod random_sequences;
#[path = "graph/reports.rs"]
mod reports;
#[path = "graph/retention.rs"]
mod retention;
#[path = "graph/retry.rs"]
mod retry;
#[path = "graph/size.rs"]
mod size;
#[path = "graph/submit.rs"]
mod submit;
#[path = "graph/transitions.rs"]
mod transitions;
#[path = "graph/watches.rs"]
mod watches;
#[path = "graph/why.rs"]
mod why;

/// Runs each case on PostgreSQL, directly and behind a pooler. On SQLite a frozen process would hold the only write
/// lock.
macro_rules! on_servers {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod server {
            use tidemill_testkit::interface::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Postgres).await; })+
        }
        mod pgbouncer {
            use tidemill_testkit::interface::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Pgbouncer).await; })+
        }
    };
}

on_servers! {
    controllers::controller_frozen_in_a_transaction_blocks_no_other,
    controllers::server_frozen_in_a_report_blocks_no_other,
}

tidemill_testkit::on_both! {
    watches::watch_sees_changes_of_another_process,
    agents::leaving_agent_returns_unstarted_tasks,
    agents::job_with_lost_time_is_rerun_after_it,
    agents::job_without_lost_time_waits_for_its_silent_agent,
    agents::silent_agent_loses_unstarted_tasks,
    agents::agent_registers_with_new_token_once_the_old_one_is_invalid,
    agents::agent_is_accessible_only_to_its_token,
    agents::project_agent_gets_only_jobs_of_its_projects,
    agents::registration_replaces_the_secret_of_its_directory,
    agents::agent_token_is_bound_to_one_agent,
    agents::draining_agent_gets_no_new_tasks,
    agents::forgotten_agent_frees_jobs_and_capacity,
    agents::last_task_of_a_job_is_lost_or_forgotten_like_others,
    agents::older_process_of_an_agent_is_refused,
    transitions::every_stage_sets_its_job_status,
    transitions::wait_and_reset_transitions_match_the_diagram,
    transitions::transitions_outside_the_diagram_are_refused,
    transitions::failure_transitions_match_the_diagram,
    transitions::plain_sql_on_jobs_is_recorded,
    cancel::unconfirmed_cancel_is_ordered_repeatedly,
    cancel::cancel_before_a_task_exists_stops_none,
    cancel::cancel_in_each_stage_frees_capacity_when_confirmed,
    cancel::cancel_of_one_job_leaves_independent_jobs,
    cancel::task_result_confirms_the_cancel,
    cancel::repeated_cancel_counts_once,
    cancel::cancel_while_the_agent_is_away_waits,
    random_sequences::random_sequences_end_every_job_and_run_none_twice,
    controllers::thawed_controller_without_lease_writes_nothing,
    controllers::concurrent_job_change_rolls_the_pass_back,
    controllers::released_lease_is_acquired_at_once,
    controllers::controller_takeover_changes_no_job,
    controllers::only_one_controller_acts,
    controllers::loop_starts_a_dependent_job_at_once,
    flags::maintenance_blocks_only_database_jobs,
    flags::pause_keeps_running_jobs,
    flags::probe_never_changes_a_flag_set_by_a_person,
    flags::reboot_is_safe_once_nothing_runs,
    flags::pass_that_missed_a_flag_starts_no_job,
    flags::job_that_succeeded_before_a_flag_stays_succeeded,
    flags::flag_of_two_probes_clears_when_both_recover,
    retention::agent_cannot_list_or_remove_outputs_of_another,
    retention::outputs_needed_by_a_live_run_stay,
    retention::removed_outputs_are_not_reused,
    retention::outputs_unknown_to_the_server_may_be_removed,
    graph_run::graph_run_is_never_claimed_or_swept,
    graph_run::graph_cancelled_by_sql_function_stops_soon,
    graph_run::retry_of_a_graph_with_pruned_jobs_is_refused,
    graph_run::job_ended_by_plain_sql_is_noticed_without_a_full_pass,
    graph_run::graph_run_ends_when_plain_sql_ends_its_last_job,
    graph_run::graph_run_ended_by_plain_sql_ends_its_jobs,
    graph_run::cancel_and_retry_of_the_run_apply_to_the_graph,
    graph_run::graph_run_state_follows_its_jobs,
    graph_run::job_changed_by_plain_sql_is_stopped_on_its_agent,
    graph_run::old_graphs_are_pruned_in_batches,
    graph_run::old_graphs_are_pruned,
    placement::job_is_placed_on_the_agent_with_its_files,
    placement::job_is_placed_where_later_jobs_need_its_files,
    placement::job_waits_for_the_agent_with_its_files,
    placement::files_of_a_forgotten_agent_are_lost,
    placement::files_on_two_agents_are_joined_by_a_rerun,
    placement::only_existing_files_are_reused,
    reports::report_of_an_old_attempt_changes_nothing,
    reports::heartbeat_reports_task_stages,
    reports::heartbeat_records_a_limited_number_of_stages,
    reports::agent_with_a_wrong_clock_works,
    reports::logs_of_every_attempt_are_stored_up_to_a_limit,
    reports::outputs_of_the_successful_attempt_are_passed_on,
    reports::repeated_and_unordered_reports_change_nothing,
    reports::report_over_a_limit_is_refused,
    retry::failed_command_is_retried_only_with_retries,
    retry::graph_retry_reuses_succeeded_jobs,
    retry::job_that_an_agent_cannot_execute_goes_to_another,
    retry::job_without_its_secret_goes_to_another_agent,
    retry::agent_failures_are_limited_and_back_off,
    retry::named_jobs_and_their_dependents_run_again,
    capacity::job_heavier_than_its_pool_is_refused,
    capacity::job_heavier_than_every_agent_fails,
    capacity::job_waits_for_an_agent_known_at_submission,
    capacity::pool_limits_the_total_weight_of_its_jobs,
    capacity::shrunk_pool_blocks_its_heavier_jobs,
    capacity::flooding_workspace_leaves_capacity_for_another,
    capacity::agent_runs_jobs_up_to_its_capacity,
    capacity::equal_workspace_names_of_two_projects_share_fairly,
    size::chain_of_five_hundred_jobs_completes,
    size::failure_spreads_in_one_pass,
    size::many_small_graphs_complete,
    size::graph_of_ten_thousand_jobs_completes,
    submit::invalid_graph_is_refused_completely,
    submit::job_changes_are_listed_by_version,
    submit::requested_jobs_run_with_their_dependencies,
    submit::repeated_submission_returns_the_same_graph,
    why::every_wait_has_a_reason,
}
