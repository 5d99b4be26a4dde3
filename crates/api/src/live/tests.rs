//! What a caller of one project gets to see of another one's events.

use super::{everybody, one_run};
use crate::access::{Access, Caller, Visit};
use crate::answer::Fail;
use crate::app::App;
use crate::extract::{Id, LastEventId, Query};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_testkit::door::{Kind, Stage, at, info};
use tidemill_wire::live::{Follow, FollowRun};

fn of_shop() -> Caller {
    Caller { name: "ann".to_owned(), role: Role::Viewer, project: Some("shop".to_owned()) }
}

async fn follow_run(app: &App, run: &str) -> Result<Response, Fail> {
    let run: RunId = run.parse().unwrap();
    let query = Query(FollowRun::default());
    one_run(State(app.clone()), of_shop(), Visit::default(), Id(run), query, LastEventId(None)).await
}

async fn follow(app: &App, project: Option<&str>, after: Option<&str>) -> Result<Response, Fail> {
    let query = Query(Follow { project: project.map(str::to_owned), after: None });
    let last = LastEventId(after.map(str::to_owned));
    everybody(State(app.clone()), of_shop(), Visit::default(), query, last).await
}

async fn said(fail: Fail) -> String {
    let body = fail.into_response().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// What a stream says until it has said `end`.
async fn until(response: Response, end: &str) -> String {
    let (mut body, mut text) = (response.into_body(), String::new());
    while !text.contains(end) {
        let frame = tokio::time::timeout(Duration::from_mins(1), body.frame()).await.unwrap();
        text.push_str(std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap());
    }
    text
}

#[tokio::test]
async fn a_caller_of_one_project_learns_nothing_of_another() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let stage = Stage::open(kind).await;
        let engine = Engine::new(stage.store.clone(), Clock::Database, Patience::None);
        let syncs = Syncs::new(engine, SyncSettings::default());
        let app = App::new(syncs, Access::Open { name: "tester".to_owned() });
        let shop = stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        let bank = stage.running(QueueRun::new("bank", "staging"), "bob", at(0)).await.run_id;

        // Foreign and unknown read the same, word for word.
        let foreign = said(follow_run(&app, bank.as_str()).await.unwrap_err()).await;
        let unknown = said(follow_run(&app, "run-nobody").await.unwrap_err()).await;
        assert_eq!(foreign, unknown.replace("run-nobody", bank.as_str()));
        let foreign = said(follow(&app, Some("bank"), None).await.unwrap_err()).await;
        let unknown = said(follow(&app, Some("nobody"), None).await.unwrap_err()).await;
        assert_eq!(foreign, unknown.replace("nobody", "bank"));

        // Whether caught up or live, asked for or not, only its own events come.
        let mut streams = Vec::new();
        for project in [None, Some("shop")] {
            for after in [None, Some("0")] {
                streams.push(follow(&app, project, after).await.unwrap());
            }
        }
        streams.push(follow_run(&app, shop.as_str()).await.unwrap());
        stage.say(&bank, info("of the bank"), at(1)).await;
        stage.say(&shop, info("of the shop"), at(1)).await;
        for stream in streams {
            let text = until(stream, "of the shop").await;
            assert!(!text.contains(bank.as_str()) && !text.contains("of the bank"), "{text}");
        }
        app.close();
        stage.close().await;
    }
}

#[tokio::test]
async fn streams_go_on_after_the_hub_panicked() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let stage = Stage::open(kind).await;
        let engine = Engine::new(stage.store.clone(), Clock::Database, Patience::None);
        let syncs = Syncs::new(engine, SyncSettings::default());
        let app = App::new(syncs, Access::Open { name: "tester".to_owned() });
        let shop = stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        let stream = follow(&app, None, None).await.unwrap();
        let panics = &app.live().inner().panics;
        panics.arm(2);
        for number in 0..5 {
            stage.say(&shop, info(&format!("event {number};")), at(1)).await;
        }
        tokio::time::timeout(Duration::from_mins(1), async {
            while panics.left() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the hub reads events");
        stage.say(&shop, info("the last one"), at(2)).await;
        let text = until(stream, "the last one").await;
        for number in 0..5 {
            let event = format!("event {number};");
            assert_eq!(text.matches(&event).count(), 1, "each event comes once: {text}");
        }
        let hub = stage.store.monitor().loops().into_iter().find(|state| state.name == "live_stream");
        let hub = hub.expect("the hub runs while somebody reads");
        assert_eq!((hub.restarts, hub.failure), (2, None));
    }
}
