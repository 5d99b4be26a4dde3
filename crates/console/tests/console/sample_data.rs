//! Sample data: objects in every state, with hostile texts.

use crate::server::ConsoleServer;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::feed::Feed;
use tidemill_core::limits::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX};
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::Stage;
use tidemill_core::run::{ClaimRuns, FinalStatus, QueueRun};
use tidemill_core::worker::NewWorker;
use tidemill_core::{Json, WorkerId};
use tidemill_engine::NewSchedule;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::FeedChange;
use tidemill_store::{FinishRun, Holder, NewReject};
use uuid::Uuid;

/// Hostile text: markup, script, attributes, terminal codes and a bidirectional mark.
pub(crate) const HOSTILE_TEXT: &str = "</td><script>alert('x')</script>\"'><img src=x onerror=alert(1)>&amp;\
                                \u{1b}[31m\u{202e}txt.exe\u{9b}";
/// Hostile text without control characters, for names.
pub(crate) const HOSTILE_NAME: &str = "</td><script>alert('x')</script>\"'><img src=x onerror=alert(1)>&amp;\
                                     \u{202e}";
/// Name of the sample feed.
pub(crate) const FEED: &str = "stones";

/// Name of the sample feed with a definition.
pub(crate) const DEFINED_FEED: &str = "orders";

/// Ids of the sample runs.
pub(crate) struct SampleData {
    pub(crate) queued: RunId,
    pub(crate) running: RunId,
    pub(crate) failed: RunId,
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// Claims the next run, which must be the given one.
pub(crate) async fn claim(server: &ConsoleServer, run: &RunId, worker: &str) -> Holder {
    let claims = server.engine().claim(ClaimRuns::one(worker)).await.expect("a claim");
    let claim = claims.iter().find(|claim| claim.run_id == *run).expect("the run is claimed");
    Holder { worker: Some(worker.to_owned()), epoch: Some(claim.epoch) }
}

pub(crate) fn event(level: Level, message: &str, payload: Json) -> NewEvent {
    NewEvent { level, message: message.to_owned(), payload, key: None }
}

pub(crate) async fn finish(
    server: &ConsoleServer,
    run: &RunId,
    holder: &Holder,
    status: FinalStatus,
    metadata: Json,
) {
    let end = FinishRun { run_id: run.clone(), status, metadata, epoch: holder.epoch };
    server.engine().finish(vec![end], holder.worker.as_deref()).await.expect("the run is finished");
}

pub(crate) async fn populate(server: &ConsoleServer) -> SampleData {
    let engine = server.engine();
    let long = "ж".repeat(KEY_BYTES_MAX / 2);
    let worker = NewWorker {
        worker_id: WorkerId(Uuid::new_v4()),
        name: "worker-1".to_owned(),
        host: HOSTILE_NAME.to_owned(),
        pid: 4_711,
        labels: vec![],
        version: "0.1.0".to_owned(),
    };
    engine.store().register_worker(worker, None).await.expect("a worker");
    let failed = engine
        .queue(QueueRun {
            git_ref: Some(HOSTILE_NAME.to_owned()),
            git_sha: Some(long.clone()),
            kind: HOSTILE_NAME.chars().take(40).collect(),
            metadata: json!({"asked": HOSTILE_TEXT, HOSTILE_TEXT: 1}),
            ..request()
        })
        .await
        .expect("a run")
        .run_id;
    let holder = claim(server, &failed, "worker-1").await;
    let limit = "x<y ".repeat(MESSAGE_BYTES_MAX / 4);
    let events = vec![
        event(Level::Warn, HOSTILE_TEXT, json!({HOSTILE_TEXT: HOSTILE_TEXT})),
        event(Level::Error, &limit, json!({"big": "<b>".repeat(20_000)})),
        event(Level::Debug, "", json!({})),
    ];
    engine.append(&failed, events, &holder).await.expect("events");
    let artifact = json!([
        {"type": "<script>alert(1)</script>", "url": "javascript:alert(1)"},
        {"type": "image", "url": "https://store.example/i\"><b>"},
    ]);
    finish(
        server,
        &failed,
        &holder,
        FinalStatus::Failed,
        json!({"error": HOSTILE_TEXT, "artifacts": artifact}),
    )
    .await;
    let running = engine.queue(request()).await.expect("a run").run_id;
    let holder = claim(server, &running, HOSTILE_NAME).await;
    engine.start(&running, &holder).await.expect("the run starts");
    let queued = engine
        .queue(QueueRun {
            labels: vec![HOSTILE_NAME.replace(',', "")],
            concurrency_key: Some(long),
            ..request()
        })
        .await
        .expect("a run")
        .run_id;
    add_feed(server).await;
    let schedule = NewSchedule {
        name: "nightly".to_owned(),
        cron: "30 2 * * *".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        request: request(),
        missed: tidemill_core::schedule::MissedPolicy::Once,
        overlap: tidemill_core::schedule::OverlapPolicy::Skip,
    };
    engine.put_schedule(schedule).await.expect("a schedule");
    engine.pause_schedule("nightly", Some(HOSTILE_NAME.to_owned())).await.expect("the schedule is paused");
    SampleData { queued, running, failed }
}

async fn add_feed(server: &ConsoleServer) {
    let feed = Feed {
        feed: FEED.to_owned(),
        project_id: "shop".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: "http://127.0.0.1:9/<b>\"".to_owned(),
        username: Some("tester".to_owned()),
        password_env: Some("PATH".to_owned()),
        rate: 5,
        settings: json!({"shapes": [HOSTILE_NAME]}),
        defined_by: DefinedBy::Operator,
        created_at: host_now(),
    };
    let defined = Feed {
        feed: DEFINED_FEED.to_owned(),
        kind: "rest".to_owned(),
        username: None,
        password_env: None,
        settings: json!({}),
        ..feed.clone()
    };
    let defined = FeedChange {
        feed: defined,
        definition: Some(definition()),
        copy_url: None,
        schedule: None,
        full_schedule: None,
        time_zone: "UTC".to_owned(),
    };
    server.syncs.put_feed(defined).await.expect("a feed with a definition");
    let change = FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: Some("0 * * * *".to_owned()),
        full_schedule: Some("0 3 * * 0".to_owned()),
        time_zone: "UTC".to_owned(),
    };
    server.syncs.put_feed(change).await.expect("a feed");
    let write = server.fixture.store.write(move |mut tx| {
        Box::pin(async move {
            let reject = NewReject {
                record_id: HOSTILE_TEXT.to_owned(),
                stage: Stage::Map,
                reason: HOSTILE_TEXT.to_owned(),
                payload: HOSTILE_TEXT.to_owned(),
            };
            tx.reject(FEED, Uuid::nil(), None, &reject, None).await
        })
    });
    write.await.expect("a rejected record");
    let flag = tidemill_core::project::Flag {
        flag: tidemill_core::project::FlagName::Paused,
        scope: format!("feed:{FEED}"),
        note: Some(HOSTILE_NAME.to_owned()),
        since: host_now(),
        until_at: None,
        set_by: Some(HOSTILE_NAME.to_owned()),
        source: tidemill_core::project::FlagSource::Manual,
    };
    server.fixture.store.set_flag(flag).await.expect("a flag");
    dead_letter(server, "letter-1").await;
}

/// A definition with hostile texts that leaves nothing open, so that no request is sent.
fn definition() -> String {
    let hostile = HOSTILE_TEXT.replace(['\u{1b}', '\u{9b}'], "").replace('\'', "''");
    format!(
        "version: 1\nfeed: {DEFINED_FEED}\nclient: {{base_url: 'http://127.0.0.1:9'}}\n\
         resource: {{path: /orders, primary_key: id, data_selector: items, params: {{note: '{hostile}'}}}}\n\
         paginator: {{type: offset, offset_param: skip, limit: 100, limit_param: take}}\n\
         partition: {{type: values, param: region, values: [eu, us]}}\n\
         into: {{table: public.orders, columns: {{id: {{path: id, type: text, nullable: false}}}}}}\n"
    )
}

/// Adds a dead letter with a hostile error.
pub(crate) async fn dead_letter(server: &ConsoleServer, id: &str) {
    dead_letter_of(server, id, HOSTILE_NAME).await;
}

/// Adds a dead letter with this error.
pub(crate) async fn dead_letter_of(server: &ConsoleServer, id: &str, reason: &str) {
    use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
    use tidemill_store::Queue as _;
    let message = NewMessage::new(WORK_ITEMS, id, FEED, json!({"text": reason, "nothing": true}));
    let store = &server.fixture.store;
    let sent = store.send_locked(message, WorkerId(Uuid::new_v4()), None).await.expect("the message is sent");
    let receipt = sent.expect("the message is new").receipt;
    let error = Some(reason.to_owned());
    store.kill(receipt, DeadReason::Permanent, error, None).await.expect("the message is dead");
}

/// Paths of all pages with sample data.
pub(crate) fn paths(data: &SampleData) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/",
        "/runs",
        "/runs?status=failed&within=24h",
        "/runs?find=zzz",
        "/runs?kind=zzz",
        "/runs?status=wrong",
        "/feeds",
        "/queues",
        "/workers",
        "/schedules",
        "/flags",
    ]
    .map(str::to_owned)
    .to_vec();
    for run in [&data.queued, &data.running, &data.failed] {
        paths.push(format!("/runs/{run}"));
        paths.push(format!("/runs/{run}/tail?after=0"));
    }
    paths.push(format!("/runs/{}?level=warn&find=alert", data.failed));
    paths.push(format!("/feeds/{FEED}"));
    paths.push(format!("/feeds/{DEFINED_FEED}"));
    paths.push(format!("/feeds/{FEED}?price=1250&carats=1.25"));
    paths.push(format!("/feeds/{FEED}?price=x&carats=1.25"));
    paths.extend(["work-items", "work-done", "consolidate"].map(|queue| format!("/queues/{queue}")));
    paths
}
