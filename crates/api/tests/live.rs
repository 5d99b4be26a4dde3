//! Live events: none is lost and none is repeated, however readers reconnect.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "live/all_runs.rs"]
mod all_runs;
#[path = "live/client.rs"]
mod client;
#[path = "live/late_commits.rs"]
mod late_commits;
#[path = "live/one_run.rs"]
mod one_run;
#[path = "live/reader.rs"]
mod reader;
#[path = "live/restart.rs"]
mod restart;

use axum::Router;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::event::NewEvent;
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_store::{Holder, Store};
use tidemill_testkit::interface::{Fixture, Kind, at, info};

pub(crate) use reader::StreamReader;

/// A router without a port, on a database of its own.
#[derive(Clone)]
pub(crate) struct LiveFixture {
    pub(crate) base: Fixture,
    pub(crate) app: App,
    pub(crate) interface: Router,
}

impl LiveFixture {
    async fn open(kind: Kind) -> Self {
        Self::on(Fixture::open(kind).await)
    }

    pub(crate) fn on(base: Fixture) -> Self {
        let app = app(&base.store);
        Self { interface: tidemill_api::router(app.clone()), app, base }
    }

    /// Returns another server on the same data.
    pub(crate) async fn second_server(&self) -> Router {
        tidemill_api::router(app(&self.base.open_second_store().await))
    }

    pub(crate) async fn reader(&self, path: &str, after: Option<&str>) -> StreamReader {
        StreamReader::open(&self.interface, path, after).await
    }

    /// Starts a run in a project.
    pub(crate) async fn running(&self, project: &str) -> RunId {
        self.base.running(QueueRun::new(project, "staging"), "ann", at(0)).await.run_id
    }

    /// Appends events with these numbers.
    pub(crate) async fn append_numbers(&self, run: &RunId, numbers: std::ops::Range<usize>) {
        let events: Vec<NewEvent> = numbers.map(|number| info(&number.to_string())).collect();
        let ids = self.base.append(run, events, Holder::default(), at(1)).await;
        assert!(ids.iter().all(Option::is_some), "the run is held");
    }
}

/// Returns the HTTP API on a store.
pub(crate) fn app(store: &Store) -> App {
    let engine = Engine::new(store.clone(), Clock::Database, RetryPolicy::None);
    App::new(Syncs::new(engine, SyncSettings::default()), Access::Open { name: "tester".to_owned() })
}

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The names of all listed cases.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod pgbouncer { cases! { @store Pgbouncer, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let fixture = crate::LiveFixture::open(tidemill_testkit::interface::Kind::$kind).await;
                crate::$topic::$case(fixture.clone()).await;
                fixture.app.close();
                fixture.base.close().await;
            }
        )+)+
    };
}

cases! {
    one_run:
        run_stream_starts_with_past_events_then_live,
        run_reader_resumes_at_any_event,
        run_stream_keeps_order_with_concurrent_writers,
        quiet_stream_sends_keep_alives,
        malformed_resume_position_is_refused,
        stream_ends_when_the_server_closes;
    all_runs:
        events_are_streamed_as_they_are_written,
        project_stream_has_only_its_own_events,
        reader_resumes_at_every_position_of_a_batch,
        reader_without_events_yet_misses_nothing,
        reader_moves_between_servers,
        random_writers_and_reconnects_lose_and_repeat_nothing,
        slow_reader_is_disconnected_and_resumes,
        pruning_removes_only_pruned_events_from_streams;
}

/// An unlisted case would never run.
#[test]
fn every_case_is_listed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("the folder is read") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("the file is read");
        for line in text.lines().filter_map(|line| line.strip_prefix("pub(crate) async fn ")) {
            let name = line.split('(').next().unwrap_or_default();
            assert!(LISTED.contains(&name), "{name} is on no list in live.rs");
            cases += 1;
        }
    }
    assert_eq!(cases, LISTED.len());
}
