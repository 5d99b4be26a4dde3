//! Graphs as they should go: one list of cases, run on each store, with scripted agents and a clock that a test
//! moves.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "graph/agents.rs"]
mod agents;
#[path = "graph/arrows.rs"]
mod arrows;
#[path = "graph/cancelling.rs"]
mod cancelling;
#[path = "graph/chance.rs"]
mod chance;
#[path = "graph/controllers.rs"]
mod controllers;
#[path = "graph/flags.rs"]
mod flags;
#[path = "graph/keeping.rs"]
mod keeping;
#[path = "graph/kernel.rs"]
mod kernel;
#[path = "graph/placing.rs"]
mod placing;
#[path = "graph/reporting.rs"]
mod reporting;
#[path = "graph/retrying.rs"]
mod retrying;
#[path = "graph/room.rs"]
mod room;
#[path = "graph/scene.rs"]
mod scene;
#[path = "graph/size.rs"]
mod size;
#[path = "graph/submitting.rs"]
mod submitting;
#[path = "graph/why.rs"]
mod why;

/// Runs each case on both stores.
macro_rules! on_both {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod postgres {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Postgres).await; })+
        }
        mod sqlite {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Sqlite).await; })+
        }
    };
}

/// Runs each case on PostgreSQL, and on PostgreSQL behind a pooler: in SQLite a frozen process holds the one lock.
macro_rules! on_servers {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod server {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Postgres).await; })+
        }
        mod pgbouncer {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(Kind::Pgbouncer).await; })+
        }
    };
}

on_servers! {
    controllers::a_controller_that_is_frozen_in_a_step_holds_nobody_up,
    controllers::a_server_that_is_frozen_in_a_report_holds_nobody_up,
}

on_both! {
    agents::a_goodbye_gives_back_what_was_not_begun,
    agents::a_job_that_may_be_rerun_is_lost_after_its_time,
    agents::a_job_that_waits_keeps_waiting_for_its_agent,
    agents::a_silent_agent_loses_what_it_has_not_begun,
    agents::an_agent_comes_with_another_token_when_its_own_is_over,
    agents::an_agent_of_a_token_is_nobody_elses,
    agents::an_agent_of_one_project_gets_only_its_jobs,
    agents::an_agent_that_never_said_its_secret_is_bound_to_its_token,
    agents::an_agent_that_drains_gets_nothing_new,
    agents::an_agent_that_is_forgotten_frees_everything,
    agents::the_last_task_that_comes_to_nothing_is_lost_or_forgotten_too,
    agents::an_older_process_of_an_agent_is_refused,
    arrows::every_stage_of_a_job_is_shown,
    arrows::every_wait_and_reset_of_the_diagram_is_reached,
    arrows::the_database_refuses_what_the_diagram_does_not_have,
    arrows::the_failures_of_the_diagram,
    arrows::what_a_plain_statement_does_is_on_record,
    cancelling::an_agent_that_cannot_stop_a_task_is_told_so_often,
    cancelling::before_there_is_a_task_none_is_stopped,
    cancelling::in_each_stage_the_room_is_free_when_the_agent_confirms,
    cancelling::one_job_of_a_graph,
    cancelling::the_result_of_the_task_confirms_as_well,
    cancelling::twice_is_once,
    cancelling::while_the_agent_is_away,
    chance::whatever_happens_everything_ends_and_nothing_runs_twice,
    controllers::a_controller_that_was_frozen_writes_nothing,
    controllers::a_job_that_moved_on_takes_the_step_back,
    controllers::a_lease_that_is_given_back_is_taken_at_once,
    controllers::a_takeover_changes_no_job,
    controllers::only_one_acts,
    controllers::the_loop_starts_a_dependent_at_once,
    flags::a_maintenance_stops_only_jobs_of_the_database,
    flags::a_pause_lets_running_jobs_go_on,
    flags::a_probe_never_changes_what_a_person_set,
    flags::a_restart_is_safe_when_nothing_runs,
    flags::a_step_that_has_not_seen_a_flag_starts_nothing,
    flags::what_succeeded_before_a_flag_has_succeeded,
    flags::what_two_probes_found_is_over_when_both_say_so,
    keeping::nobody_learns_or_removes_what_is_anothers,
    keeping::what_a_live_run_needs_stays,
    keeping::what_is_removed_is_not_reused,
    keeping::what_the_server_has_removed_may_go,
    kernel::a_graph_is_never_claimed_nor_swept,
    kernel::a_graph_that_is_cancelled_in_sql_stops_soon,
    kernel::a_graph_is_not_tried_again_without_its_jobs,
    kernel::a_job_that_a_statement_ended_is_seen_without_a_pass,
    kernel::a_run_whose_last_job_a_statement_ended_ends,
    kernel::a_run_that_is_ended_by_hand_takes_its_jobs_with_it,
    kernel::cancelling_and_retrying_the_run_is_the_same,
    kernel::the_run_follows_its_jobs,
    kernel::what_a_statement_moved_is_stopped_on_its_agent,
    kernel::what_ended_long_ago_goes_step_by_step,
    kernel::what_ended_long_ago_is_removed,
    placing::a_job_goes_where_its_files_are,
    placing::a_job_joins_the_files_that_will_be_needed_with_its_own,
    placing::a_job_waits_for_the_agent_that_has_its_files,
    placing::files_of_an_agent_that_is_forgotten_are_gone,
    placing::files_on_two_disks_are_brought_together_by_another_try,
    placing::only_files_that_are_there_are_reused,
    reporting::a_report_of_an_old_attempt_changes_nothing,
    reporting::a_sign_of_life_tells_how_far_a_task_is,
    reporting::a_sign_of_life_tells_only_so_much,
    reporting::an_agent_with_a_wrong_clock_is_as_good_as_any,
    reporting::logs_of_every_attempt_are_kept_and_bounded,
    reporting::outputs_of_the_attempt_that_counts_are_handed_on,
    reporting::reports_out_of_order_and_twice,
    reporting::what_is_out_of_bounds_is_refused,
    retrying::a_command_that_fails_is_tried_again_only_where_asked,
    retrying::a_graph_is_tried_again_and_what_succeeded_is_reused,
    retrying::a_job_that_an_agent_cannot_carry_out_goes_to_another,
    retrying::a_job_whose_secret_an_agent_lacks_goes_to_another,
    retrying::an_agents_failures_are_bounded_and_backed_off,
    retrying::named_jobs_and_everything_after_them_run_again,
    room::a_job_wider_than_its_pool_is_refused,
    room::a_job_wider_than_every_agent_that_comes_is_given_up,
    room::a_job_waits_for_the_agent_that_its_submission_counted_on,
    room::a_pool_bounds_its_jobs_by_weight,
    room::a_pool_that_shrinks_keeps_its_jobs_waiting,
    room::a_workspace_that_floods_leaves_room_for_another,
    room::an_agent_carries_no_more_than_it_can,
    room::projects_that_name_their_workspaces_alike_share_fairly,
    size::a_chain_of_five_hundred,
    size::failure_spreads_in_one_step,
    size::many_small_graphs,
    size::ten_thousand_jobs,
    submitting::a_graph_that_cannot_be_is_refused_whole,
    submitting::changes_are_told_by_version,
    submitting::only_some_jobs_and_what_they_need,
    submitting::the_same_submission_twice,
    why::every_wait_has_its_reason,
}
