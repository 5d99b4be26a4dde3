//! Syncs with faults: after crashes, repeated, late and unordered messages and changes of the source, the table equals
//! the source.
//!
//! Random choices follow a printed seed; `TIDEMILL_SEED` repeats it.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]
#![expect(clippy::print_stdout, reason = "seeds and measurements are printed for the reader of the output")]

#[path = "sync_faults/changing_source.rs"]
mod changing_source;
#[path = "sync_faults/connection_cuts.rs"]
mod connection_cuts;
#[path = "sync_faults/consolidators.rs"]
mod consolidators;
#[path = "sync_faults/fixture.rs"]
mod fixture;
#[path = "sync_faults/kills.rs"]
mod kills;
#[path = "sync_faults/messages.rs"]
mod messages;
#[path = "sync_faults/partial_failures.rs"]
mod partial_failures;
#[path = "sync_faults/shutdown.rs"]
mod shutdown;
#[path = "sync_faults/simultaneous_end.rs"]
mod simultaneous_end;

tidemill_testkit::on_both! {
    worker_threads = 4;
    kills::sync_survives_killed_schedulers,
    kills::sync_survives_killed_workers,
    kills::sync_survives_killed_consolidators,
    kills::sync_survives_the_death_of_all_roles,
    messages::repeated_late_and_unordered_page_messages_are_safe,
    messages::page_delivered_to_two_workers_is_stored_once,
    messages::messages_after_completion_change_nothing,
    messages::messages_after_a_failure_change_nothing,
    messages::repeated_consolidation_message_consolidates_once,
    simultaneous_end::simultaneous_last_partitions_trigger_one_consolidation,
    consolidators::consolidation_longer_than_its_lock_completes_once,
    changing_source::records_sold_during_paging_are_handled,
    changing_source::records_changed_during_paging_are_handled,
    changing_source::changes_around_the_window_end_arrive,
    changing_source::change_after_the_window_end_is_not_skipped,
    changing_source::short_page_does_not_end_the_partition,
    partial_failures::records_of_a_failed_sync_are_consolidated_by_the_next,
    partial_failures::half_failed_first_sync_is_completed_by_the_next,
    partial_failures::full_sync_does_not_starve_an_incremental_sync,
    shutdown::shutdown_finishes_the_current_page_and_releases_leases,
    shutdown::shutdown_during_the_scan_passes_the_run_on,
}

/// Faults that only PostgreSQL can have: single locked rows, and a server that stops.
mod on_postgres {
    use super::{connection_cuts, consolidators, simultaneous_end};
    use tidemill_testkit::interface::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn second_last_partition_counts_the_first() {
        Box::pin(simultaneous_end::second_last_partition_counts_the_first()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn frozen_consolidator_does_not_stop_the_other() {
        Box::pin(consolidators::frozen_consolidator_does_not_stop_the_other()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn vanished_records_are_deleted_despite_a_slow_helper() {
        Box::pin(consolidators::vanished_records_are_deleted_despite_a_slow_helper()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn sync_survives_a_database_restart() {
        connection_cuts::sync_survives_a_database_restart().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn failed_check_is_not_a_success() {
        Box::pin(connection_cuts::failed_check_is_not_a_success()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn sync_survives_cut_connections() {
        Box::pin(connection_cuts::simulation(Kind::Postgres, std::time::Duration::from_secs(10))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    #[ignore = "long; cargo xtask soak runs it"]
    async fn soak_sync_survives_cut_connections() {
        Box::pin(connection_cuts::simulation(Kind::Postgres, super::fixture::soak())).await;
    }
}

tidemill_testkit::on_rest! {
    kills::sync_survives_killed_schedulers, except [];
    kills::sync_survives_killed_workers, except [];
    kills::sync_survives_killed_consolidators, except [];
    kills::sync_survives_the_death_of_all_roles, except [];
    messages::repeated_late_and_unordered_page_messages_are_safe, except [];
    messages::page_delivered_to_two_workers_is_stored_once, except [];
    messages::messages_after_completion_change_nothing, except [];
    messages::messages_after_a_failure_change_nothing, except [];
    messages::repeated_consolidation_message_consolidates_once, except [];
    simultaneous_end::simultaneous_last_partitions_trigger_one_consolidation, except [];
    changing_source::records_sold_during_paging_are_handled, except [PageNumber];
    changing_source::records_changed_during_paging_are_handled, except [PageNumber];
    changing_source::changes_around_the_window_end_arrive, except [];
    partial_failures::records_of_a_failed_sync_are_consolidated_by_the_next, except [];
    partial_failures::half_failed_first_sync_is_completed_by_the_next, except [];
    shutdown::shutdown_finishes_the_current_page_and_releases_leases, except [];
    shutdown::shutdown_during_the_scan_passes_the_run_on, except [];
}

/// Cut connections, which only PostgreSQL has.
mod rest_on_postgres {
    use super::connection_cuts::simulation;
    use super::fixture::soak;
    use std::time::Duration;
    use tidemill_testkit::interface::Kind;
    use tidemill_testkit::rest_fixture::{any_of, paged_except};

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn rest_sync_survives_cut_connections() {
        let pagination = any_of(&paged_except(&[]));
        Box::pin(simulation((Kind::Postgres, pagination), Duration::from_secs(10))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    #[ignore = "long; cargo xtask soak runs it"]
    async fn soak_rest_sync_survives_cut_connections() {
        let paginations = paged_except(&[]);
        let each = soak() / u32::try_from(paginations.len()).expect("there are few");
        for pagination in paginations {
            Box::pin(simulation((Kind::Postgres, pagination), each)).await;
        }
    }
}
