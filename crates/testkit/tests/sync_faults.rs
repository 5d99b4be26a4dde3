//! Syncs that are disturbed: whatever dies, comes twice, comes late or moves, the table equals the source.
//!
//! Whatever is left to chance follows a seed that is printed; `TIDEMILL_SEED` repeats it.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]
#![expect(clippy::print_stdout, reason = "seeds and measurements are for whoever reads along")]

#[path = "sync_faults/consolidators.rs"]
mod consolidators;
#[path = "sync_faults/cuts.rs"]
mod cuts;
#[path = "sync_faults/ground.rs"]
mod ground;
#[path = "sync_faults/halves.rs"]
mod halves;
#[path = "sync_faults/instant.rs"]
mod instant;
#[path = "sync_faults/kills.rs"]
mod kills;
#[path = "sync_faults/messages.rs"]
mod messages;
#[path = "sync_faults/moving.rs"]
mod moving;
#[path = "sync_faults/stopping.rs"]
mod stopping;

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
    kills::schedulers_are_killed,
    kills::workers_are_killed,
    kills::consolidators_are_killed,
    kills::all_roles_are_killed_at_once,
    messages::pages_come_twice_late_and_out_of_order,
    messages::one_page_comes_to_two_workers_at_once,
    messages::what_comes_after_the_end_changes_nothing,
    messages::what_comes_after_a_failure_changes_nothing,
    messages::consolidation_is_ordered_twice,
    instant::two_last_partitions_end_at_the_same_instant,
    consolidators::a_consolidation_longer_than_its_lock_completes_once,
    moving::stones_are_sold_while_the_sync_pages,
    moving::stones_change_while_the_sync_pages,
    moving::changes_around_the_sealed_end_arrive,
    moving::a_change_after_the_seal_is_not_passed_over,
    moving::short_pages_are_not_the_end,
    halves::what_a_failed_sync_stored_is_consolidated_by_the_next,
    halves::a_first_sync_that_fails_at_half_is_made_good,
    halves::a_full_sync_does_not_starve_the_incremental_sync_of_another_feed,
    stopping::a_stop_finishes_the_page_in_hand_and_gives_leases_back,
    stopping::a_stop_while_scanning_hands_the_run_on,
}

/// What only PostgreSQL can suffer: rows that are locked one by one, and a server that goes away.
mod on_postgres {
    use super::{consolidators, cuts, instant};

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_second_of_two_last_partitions_sees_the_first() {
        instant::the_second_of_two_last_partitions_sees_the_first().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_of_two_consolidators_is_frozen_in_a_batch() {
        consolidators::one_of_two_consolidators_is_frozen_in_a_batch().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn what_vanished_is_deleted_though_a_helper_is_slow() {
        consolidators::what_vanished_is_deleted_though_a_helper_is_slow().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_server_is_restarted_in_the_middle_of_a_sync() {
        cuts::the_server_is_restarted_in_the_middle_of_a_sync().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_look_that_failed_is_no_success() {
        Box::pin(cuts::a_look_that_failed_is_no_success()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn connections_are_cut_before_statements_and_after_commits() {
        cuts::simulation(std::time::Duration::from_secs(10)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    #[ignore = "long; cargo xtask soak runs it"]
    async fn soak_connections_are_cut_before_statements_and_after_commits() {
        cuts::simulation(super::ground::soak()).await;
    }
}
