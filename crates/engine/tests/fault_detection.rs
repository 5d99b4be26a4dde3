//! Tests that catch faults of `faults/*.patch` and need neither the suite of a whole lane nor much time.
//!
//! `cargo xtask faults` runs them in a copy of the repository that contains the faults.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a set-up that fails ends the test")]
#![expect(clippy::print_stdout, reason = "seeds are printed to reproduce a failure")]

#[path = "sync_faults/changing_source.rs"]
#[expect(dead_code, reason = "only a part of it is needed here")]
mod changing_source;
#[path = "sync_faults/fixture.rs"]
#[expect(dead_code, reason = "only a part of it is needed here")]
mod fixture;
#[path = "sync_faults/simultaneous_end.rs"]
#[expect(dead_code, reason = "only a part of it is needed here")]
mod simultaneous_end;

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};
use tidemill_engine::clock::host_now;
use tidemill_store::{FinishRun, Options, Store};
use tidemill_testkit::interface::{Fixture, Kind, at, request};
use tidemill_testkit::proxy::{Fault, Proxy};

/// Catches the fault `count-without-lock` on PostgreSQL.
mod count {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn second_last_partition_counts_the_first_on_postgres() {
        Box::pin(super::simultaneous_end::second_last_partition_counts_the_first()).await;
    }
}

/// Catches the fault `watermark-now` on SQLite.
mod watermark {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn change_after_the_window_end_is_not_skipped_on_sqlite() {
        Box::pin(super::changing_source::change_after_the_window_end_is_not_skipped(super::Kind::Sqlite))
            .await;
    }
}

/// Catches the fault `short-page-ends` on SQLite.
mod short {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn short_page_does_not_end_the_partition_on_sqlite() {
        Box::pin(super::changing_source::short_page_does_not_end_the_partition(super::Kind::Sqlite)).await;
    }
}

/// The fault `commit-then-send`: a crash between the two commits loses the request.
mod send {
    use super::*;

    fn end(run: &RunId) -> FinishRun {
        FinishRun { run_id: run.clone(), status: FinalStatus::Failed, metadata: json!({}), epoch: None }
    }

    fn tried_again() -> QueueRun {
        QueueRun { max_attempts: 2, backoff_secs: 0, ..request() }
    }

    /// Checks that the run has a successor, as a process sees it that starts after the crash.
    async fn goes_on(stage: &Fixture, run: &RunId) {
        let successor = stage.successor(run).await;
        assert!(successor.is_some(), "run {run} has ended without a successor");
    }

    /// Starts a call and drops it as soon as the end of the run is visible to others, like a caller that is killed
    /// before it reads the response.
    async fn killed_at_the_end<T>(stage: &Fixture, run: &RunId, call: impl Future<Output = T>) {
        let mut call = pin!(call);
        let begun =
            std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await;
        assert!(begun, "the call was over before it could be broken off");
        while !stage.status(run).await.is_terminal() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn f7_killed_worker_leaves_a_successor_on_sqlite() {
        let stage = Fixture::open(Kind::Sqlite).await;
        let run = stage.running(tried_again(), "worker-001", at(0)).await.run_id;
        killed_at_the_end(&stage, &run, stage.store.finish_runs(vec![end(&run)], None, Some(at(1)))).await;
        assert_eq!(stage.status(&run).await, RunState::Failed);
        goes_on(&stage, &run).await;
    }

    #[tokio::test]
    async fn f7_killed_sweeper_leaves_a_successor_on_sqlite() {
        let stage = Fixture::open(Kind::Sqlite).await;
        let run = stage.running(request(), "worker-001", at(0)).await.run_id;
        killed_at_the_end(&stage, &run, stage.store.sweep(100, 20.0, Some(at(400)))).await;
        goes_on(&stage, &run).await;
    }

    /// Opens a store whose connections are cut before a second transaction could queue a successor.
    async fn cut_off(stage: &Fixture) -> (Store, Proxy) {
        let proxy = Proxy::in_front_of(&stage.url).await.unwrap();
        let database = stage.url.rsplit('/').next().unwrap();
        let store = Store::open(&Options::new(proxy.url(database), host_now)).await.unwrap();
        proxy.arm(Fault::cut_before("follow_run").times(u32::MAX));
        (store, proxy)
    }

    #[tokio::test]
    async fn f7_cut_off_worker_leaves_a_successor_on_postgres() {
        let stage = Fixture::open(Kind::Postgres).await;
        let run = stage.running(tried_again(), "worker-001", at(0)).await.run_id;
        let (worker, _proxy) = cut_off(&stage).await;
        // The worker is gone, so its answer does not matter.
        let _ = worker.finish_runs(vec![end(&run)], None, Some(at(1))).await;
        assert_eq!(stage.status(&run).await, RunState::Failed);
        goes_on(&stage, &run).await;
    }

    #[tokio::test]
    async fn f7_cut_off_sweeper_leaves_a_successor_on_postgres() {
        let stage = Fixture::open(Kind::Postgres).await;
        let run = stage.running(request(), "worker-001", at(0)).await.run_id;
        let (sweeper, _proxy) = cut_off(&stage).await;
        let _ = sweeper.sweep(100, 20.0, Some(at(400))).await;
        assert_eq!(stage.status(&run).await, RunState::Failed);
        goes_on(&stage, &run).await;
    }
}
