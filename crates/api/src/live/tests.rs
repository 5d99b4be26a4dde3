//! Tests of live streams: project isolation, and recovery of the hub.

use super::{stream_events, stream_run};
use crate::access::{Access, AuthContext, Caller};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Id, LastEventId, Query};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_testkit::interface::{Fixture, Kind, at, info};
use tidemill_wire::live::{FollowEvents, FollowRun};

fn of_shop() -> Caller {
    Caller { name: "ann".to_owned(), role: Role::Viewer, projects: ProjectSet::of(Some("shop")) }
}

async fn follow_run(app: &App, run: &str) -> Result<Response, ApiError> {
    let run: RunId = run.parse().unwrap();
    let query = Query(FollowRun::default());
    stream_run(State(app.clone()), of_shop(), AuthContext::default(), Id(run), query, LastEventId(None)).await
}

async fn follow(app: &App, project: Option<&str>, after: Option<&str>) -> Result<Response, ApiError> {
    let query = Query(FollowEvents { project: project.map(str::to_owned), after: None });
    let last = LastEventId(after.map(str::to_owned));
    stream_events(State(app.clone()), of_shop(), AuthContext::default(), query, last).await
}

async fn error_text(error: ApiError) -> String {
    let body = error.into_response().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Reads a stream until it has sent `end`.
async fn until(response: Response, end: &str) -> String {
    let (mut body, mut text) = (response.into_body(), String::new());
    while !text.contains(end) {
        let frame = tokio::time::timeout(Duration::from_mins(1), body.frame()).await.unwrap();
        text.push_str(std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap());
    }
    text
}

#[tokio::test]
async fn caller_of_one_project_gets_no_events_of_another() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let stage = Fixture::open(kind).await;
        let engine = Engine::new(stage.store.clone(), Clock::Database, RetryPolicy::None);
        let syncs = Syncs::new(engine, SyncSettings::default());
        let app = App::new(syncs, Access::Open { name: "tester".to_owned() });
        let shop = stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        let bank = stage.running(QueueRun::new("bank", "staging"), "bob", at(0)).await.run_id;

        // The error for a foreign project or run equals the error for an unknown one.
        let foreign = error_text(follow_run(&app, bank.as_str()).await.unwrap_err()).await;
        let unknown = error_text(follow_run(&app, "run-unknown").await.unwrap_err()).await;
        assert_eq!(foreign, unknown.replace("run-unknown", bank.as_str()));
        let foreign = error_text(follow(&app, Some("bank"), None).await.unwrap_err()).await;
        let unknown = error_text(follow(&app, Some("missing"), None).await.unwrap_err()).await;
        assert_eq!(foreign, unknown.replace("missing", "bank"));

        // Only the caller's own events arrive: while catching up and live, with and without a filter.
        let mut streams = Vec::new();
        for project in [None, Some("shop")] {
            for after in [None, Some("0")] {
                streams.push(follow(&app, project, after).await.unwrap());
            }
        }
        streams.push(follow_run(&app, shop.as_str()).await.unwrap());
        stage.append_event(&bank, info("bank event"), at(1)).await;
        stage.append_event(&shop, info("shop event"), at(1)).await;
        for stream in streams {
            let text = until(stream, "shop event").await;
            assert!(!text.contains(bank.as_str()) && !text.contains("bank event"), "{text}");
        }
        app.close();
        stage.close().await;
    }
}

#[tokio::test]
async fn streams_continue_after_the_hub_panics() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let stage = Fixture::open(kind).await;
        let engine = Engine::new(stage.store.clone(), Clock::Database, RetryPolicy::None);
        let syncs = Syncs::new(engine, SyncSettings::default());
        let app = App::new(syncs, Access::Open { name: "tester".to_owned() });
        let shop = stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        let stream = follow(&app, None, None).await.unwrap();
        let panics = &app.live().inner().panics;
        panics.arm(2);
        for number in 0..5 {
            stage.append_event(&shop, info(&format!("event {number};")), at(1)).await;
        }
        tokio::time::timeout(Duration::from_mins(1), async {
            while panics.remaining() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the hub reads events");
        stage.append_event(&shop, info("the last one"), at(2)).await;
        let text = until(stream, "the last one").await;
        for number in 0..5 {
            let event = format!("event {number};");
            assert_eq!(text.matches(&event).count(), 1, "each event arrives exactly once: {text}");
        }
        let hub = stage.store.monitor().loops().into_iter().find(|state| state.name == "live_stream");
        let hub = hub.expect("the hub is running while a stream is open");
        assert_eq!((hub.restarts, hub.failure), (2, None));
    }
}
