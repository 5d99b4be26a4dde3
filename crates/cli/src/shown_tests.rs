//! Every command that a page of the console shows is one that this binary understands.
//!
//! The pages are those of a house with something of everything in it, and of an empty one. What they show is given to a
//! real shell first, so that what is quoted wrongly is noticed, and its words then to the parser of the command line.

use crate::args::Arguments;
use axum::Router;
use axum::body::{Body, to_bytes};
use clap::Parser as _;
use http::{Request, StatusCode};
use serde_json::json;
use std::collections::BTreeSet;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_core::access::{NewToken, Role};
use tidemill_core::agent::NewAgent;
use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::run::{ClaimRuns, FinalStatus, FinishRun, Holder, QueueRun};
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_core::task::job_id;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::clock::host_now;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Identity, NewSchedule};
use tidemill_store::Queue as _;
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::mill::{FEED, Mill, quick, syncs};
use tokio::sync::watch;
use tower::ServiceExt as _;
use uuid::Uuid;

/// A name that a shell would obey.
const NASTY: &str = "it's $(touch /tmp/x) `y` \"z\" & > < | ; * ~ \\";
/// What can be done, and so what must be shown somewhere.
const DONE: [&str; 28] = [
    "run cancel run-",
    "run fail run-",
    "run retry run-",
    "sync cancel ",
    "sync retry ",
    "sync consolidate ",
    "graph cancel run-",
    "graph retry run-",
    "job retry run-",
    "feed sync ",
    "feed pause ",
    "feed resume ",
    "queue replay work-items --all",
    "queue replay work-items letter",
    "flag set ",
    "flag clear paused --scope feed:",
    "schedule pause nightly",
    "schedule resume nightly",
    "agent drain ",
    "agent forget ",
    "worker drain ",
    "pool set ",
    "pool remove narrow",
    "token create ",
    "token revoke ",
    "prepare-for-reboot",
    "schedule add ",
    "feed add ",
];

/// The pages of a house, without a network between.
struct Reader {
    router: Router,
    seen: BTreeSet<String>,
}

impl Reader {
    fn of(syncs: &Syncs) -> Self {
        let app = App::new(syncs.clone(), Access::Open { name: "ann".to_owned() });
        Self { router: tidemill_console::router(app), seen: BTreeSet::new() }
    }

    /// Reads a page, and notes the commands that it shows.
    async fn read(&mut self, path: &str) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let bytes = to_bytes(response.into_body(), 16 * 1024 * 1024).await.unwrap();
        let page = String::from_utf8(bytes.to_vec()).unwrap();
        self.seen.extend(commands(&page));
    }

    async fn read_all(&mut self) {
        for path in
            ["/", "/runs", "/feeds", "/queues", "/workers", "/agents", "/schedules", "/flags", "/tokens"]
        {
            self.read(path).await;
        }
        self.read("/queues/work-items").await;
    }
}

/// The commands of a page: what stands alone in `code`, and each of those that a hint offers.
fn commands(page: &str) -> Vec<String> {
    let shown = page.split("<code>").skip(1).filter_map(|rest| rest.split_once("</code>"));
    let plain = |text: &str| {
        let text = text.replace("<bdi>", "").replace("</bdi>", "");
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let texts: Vec<String> = shown.map(|(text, _)| plain(text)).collect();
    let ours = texts.iter().filter_map(|text| text.strip_prefix("tidemill "));
    ours.flat_map(|text| text.split(", or tidemill ")).map(|text| format!("tidemill {text}")).collect()
}

/// What a shell makes of commands: the words of each.
fn words(commands: &BTreeSet<String>) -> Vec<Vec<String>> {
    let line = |command: &String| format!("set -- {command}\nprintf '%s\\0' \"$@\"\nprintf '\\036'\n");
    let script: String = commands.iter().map(line).collect();
    let done = std::process::Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    let each = text.split_terminator('\u{1e}');
    each.map(|line| line.split_terminator('\0').map(str::to_owned).collect()).collect()
}

fn check(seen: &BTreeSet<String>) {
    let words = words(seen);
    assert_eq!(words.len(), seen.len());
    for (command, mut words) in seen.iter().zip(words) {
        // A number that is for the reader to choose.
        words.iter_mut().filter(|word| *word == "SIZE").for_each(|word| "1".clone_into(word));
        if let Err(error) = Arguments::try_parse_from(&words) {
            panic!("{command}: {error}");
        }
    }
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// A worker, an agent, a pool, a schedule, tokens, a dead letter.
async fn furnish(mill: &Mill, graphs: &Graphs) {
    let (store, engine) = (&mill.stage.store, mill.syncs.engine());
    store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
    let worker = NewWorker {
        worker_id: WorkerId(Uuid::new_v4()),
        name: "worker-1".to_owned(),
        host: "here".to_owned(),
        pid: 1,
        labels: vec![],
        version: "0.1.0".to_owned(),
    };
    store.register_worker(worker, None).await.unwrap();
    let agent = NewAgent {
        agent_id: Uuid::new_v4(),
        name: "agent-1".to_owned(),
        host: "here".to_owned(),
        labels: vec![],
        capacity: 3,
        version: "0.1.0".to_owned(),
        project_id: None,
        token_id: None,
        boot_id: Uuid::new_v4(),
        secret_hash: None,
    };
    graphs.register(agent).await.unwrap();
    graphs.set_pool("narrow", 1).await.unwrap();
    let schedule = NewSchedule {
        name: "nightly".to_owned(),
        cron: "30 2 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: Missed::Once,
        overlap: Overlap::Skip,
    };
    engine.put_schedule(schedule).await.unwrap();
    let token =
        NewToken { name: NASTY.to_owned(), role: Role::Viewer, project_id: None, expires_in_secs: None };
    engine.create_token(token, "ann").await.unwrap();
    let letter = NewMessage::new(WORK_ITEMS, "letter one", FEED, json!({"text": "x".repeat(9_000)}));
    let sent = store.send_locked(letter, WorkerId(Uuid::new_v4()), None).await.unwrap().unwrap();
    store.kill(sent.receipt, DeadReason::Permanent, None, None).await.unwrap();
}

/// A run that waits for a worker that nobody has, one that failed, and one that is stalled.
async fn runs(engine: &Engine) -> [RunId; 3] {
    let failed = engine.queue(request()).await.unwrap().run_id;
    let claim = engine.claim(ClaimRuns::one("worker-1")).await.unwrap().remove(0);
    let end = FinishRun {
        run_id: failed.clone(),
        status: FinalStatus::Failed,
        metadata: json!({}),
        epoch: Some(claim.epoch),
    };
    engine.finish(vec![end], Some("worker-1")).await.unwrap();
    let labels = vec![NASTY.replace(',', "")];
    let waits = engine.queue(QueueRun { labels, ..request() }).await.unwrap().run_id;
    let stalled = engine.queue(request()).await.unwrap().run_id;
    let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-2") };
    engine.claim(ask).await.unwrap();
    engine.start(&stalled, &Holder::default()).await.unwrap();
    let later = host_now() + chrono::TimeDelta::minutes(6);
    engine.store().sweep(100, 3_600.0, Some(later)).await.unwrap();
    [failed, waits, stalled]
}

fn pause(scope: String) -> Flag {
    Flag {
        flag: FlagName::Paused,
        scope,
        note: None,
        since: host_now(),
        until_at: None,
        set_by: None,
        source: FlagSource::Manual,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_that_a_page_shows_is_understood() {
    let mill = Mill::open(Kind::Sqlite, 400).await;
    let graphs = Graphs::new(mill.syncs.engine().clone(), GraphSettings::default());
    let mut reader = Reader::of(&mill.syncs);
    furnish(&mill, &graphs).await;
    for run in runs(mill.syncs.engine()).await {
        reader.read(&format!("/runs/{run}")).await;
    }
    // A sync that is planned and goes on, and the same after somebody stopped it.
    let sync = mill.queue(true).await;
    reader.read(&format!("/runs/{sync}")).await;
    let who = Identity { name: "scheduler".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    mill.syncs.schedule(who, true, watch::Sender::new(false).subscribe()).await.unwrap();
    reader.read(&format!("/runs/{sync}")).await;
    assert!(mill.syncs.cancel_sync(sync.as_str(), "ann", None).await.unwrap());
    reader.read(&format!("/runs/{sync}")).await;
    // A graph that goes on, and the same after its end.
    let text = "version: 1\nname: \"it's\"\njobs:\n  one: {run: work, pool: narrow}\n  two: {run: work, needs: one}\n";
    let graph = graphs.submit(SubmitGraph::new("shop", "staging", text, "ann")).await.unwrap().run_id;
    let mut controller = graphs.controller("test");
    for stop in [false, true] {
        if stop {
            graphs.cancel(&graph, &[], "ann", None).await.unwrap();
        }
        while controller.tick().await.unwrap().more {}
        reader.read(&format!("/runs/{graph}")).await;
        reader.read(&format!("/jobs/{}", job_id(&graph, "two"))).await;
    }
    // A feed and a schedule that go on, and the same while they are held.
    let feed = format!("/feeds/{FEED}");
    reader.read(&feed).await;
    reader.read_all().await;
    mill.stage.store.set_flag(pause(format!("feed:{FEED}"))).await.unwrap();
    mill.syncs.engine().pause_schedule("nightly", None).await.unwrap();
    reader.read(&feed).await;
    reader.read_all().await;
    // A house in which nothing is says what to begin with.
    let bare = Stage::open_bare(Kind::Sqlite).await;
    let mut empty = Reader::of(&syncs(&bare, quick()));
    empty.read_all().await;
    reader.seen.append(&mut empty.seen);
    check(&reader.seen);
    for done in DONE {
        let is_shown = reader.seen.iter().any(|command| {
            let rest = command.strip_prefix("tidemill ").unwrap_or_default().replace('\'', "");
            rest.starts_with(done)
        });
        assert!(is_shown, "no page shows `tidemill {done}`: {:#?}", reader.seen);
    }
    let quoted = reader.seen.iter().any(|command| command.contains("--label 'it'\\''s $(touch"));
    assert!(quoted, "a label that a shell would obey is quoted: {:#?}", reader.seen);
}

#[test]
fn a_command_that_nobody_understands_is_noticed() {
    let page = "<code>tidemill up, or tidemill scheduler</code> <code>other</code> \
                <code><bdi>tidemill run list --limt 3</bdi></code>";
    let seen: BTreeSet<String> = commands(page).into_iter().collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.contains("tidemill scheduler"), "{seen:?}");
    assert!(std::panic::catch_unwind(|| check(&seen)).is_err(), "a misspelt option is found");
}
