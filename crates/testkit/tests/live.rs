//! Live events: nothing is lost and nothing is told twice, however readers go and come back.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "live/all.rs"]
mod all;
#[path = "live/client.rs"]
mod client;
#[path = "live/late.rs"]
mod late;
#[path = "live/one.rs"]
mod one;
#[path = "live/restart.rs"]
mod restart;
#[path = "live/tap.rs"]
mod tap;

use axum::Router;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::event::NewEvent;
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_store::{Holder, Store};
use tidemill_testkit::door::{Kind, Stage, at, info};

pub(crate) use tap::Tap;

/// A server without a port, on a database of its own.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    pub(crate) app: App,
    pub(crate) door: Router,
}

impl Scene {
    async fn open(kind: Kind) -> Self {
        Self::on(Stage::open(kind).await)
    }

    pub(crate) fn on(stage: Stage) -> Self {
        let app = app(&stage.store);
        Self { door: tidemill_api::router(app.clone()), app, stage }
    }

    /// Another server on the same data.
    pub(crate) async fn beside(&self) -> Router {
        tidemill_api::router(app(&self.stage.beside().await))
    }

    pub(crate) async fn tap(&self, path: &str, after: Option<&str>) -> Tap {
        Tap::open(&self.door, path, after).await
    }

    /// A run that runs, in a project.
    pub(crate) async fn running(&self, project: &str) -> RunId {
        self.stage.running(QueueRun::new(project, "staging"), "ann", at(0)).await.run_id
    }

    /// Appends events that say these numbers.
    pub(crate) async fn say(&self, run: &RunId, numbers: std::ops::Range<usize>) {
        let events: Vec<NewEvent> = numbers.map(|number| info(&number.to_string())).collect();
        let ids = self.stage.append(run, events, Holder::default(), at(1)).await;
        assert!(ids.iter().all(Option::is_some), "the run is held");
    }
}

/// The door on a store.
pub(crate) fn app(store: &Store) -> App {
    let engine = Engine::new(store.clone(), Clock::Database, Patience::None);
    App::new(Syncs::new(engine, SyncSettings::default()), Access::Open { name: "tester".to_owned() })
}

/// Makes a test of each case on each store.
macro_rules! cases {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        /// The name of every case that is on the list.
        const LISTED: &[&str] = &[$($(stringify!($case)),+),+];
        mod postgres { cases! { @store Postgres, $($topic: $($case),+;)+ } }
        mod pgbouncer { cases! { @store Pgbouncer, $($topic: $($case),+;)+ } }
        mod sqlite { cases! { @store Sqlite, $($topic: $($case),+;)+ } }
    };
    (@store $kind:ident, $($topic:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let scene = crate::Scene::open(tidemill_testkit::door::Kind::$kind).await;
                crate::$topic::$case(scene.clone()).await;
                scene.app.close();
                scene.stage.close().await;
            }
        )+)+
    };
}

cases! {
    one:
        a_run_is_told_from_its_beginning_and_then_live,
        a_reader_of_a_run_resumes_anywhere,
        a_run_is_told_in_order_while_others_write_it,
        a_quiet_stream_says_that_it_lives,
        what_names_no_place_is_refused,
        a_stream_ends_when_the_server_closes;
    all:
        everything_is_told_as_it_is_written,
        a_project_is_told_its_own_events_alone,
        a_reader_resumes_at_every_place_of_a_batch,
        a_reader_that_got_nothing_yet_misses_nothing,
        a_reader_goes_from_server_to_server,
        random_writers_and_random_reconnects_lose_and_double_nothing,
        a_slow_reader_is_let_go_and_resumes,
        pruned_events_vanish_and_nothing_else;
}

/// A case that is on no list would never run, and nobody would notice.
#[test]
fn every_case_is_on_the_list() {
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
