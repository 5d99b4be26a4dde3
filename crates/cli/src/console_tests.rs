//! Tests that every command on a page of the console parses with the command line of this binary.
//!
//! The pages are those of a database with data of every kind, and of an empty one. A real shell splits each command
//! into words first, so that wrong quoting is detected.

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
use tidemill_core::project_set::ProjectSet;
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::run::{ClaimRuns, FinalStatus, FinishRun, Holder, QueueRun};
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_core::task::job_id;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::clock::host_now;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Identity, NewSchedule};
use tidemill_store::Queue as _;
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::sync_fixture::{FEED, SyncFixture, quick, syncs};
use tokio::sync::watch;
use tower::ServiceExt as _;
use uuid::Uuid;

/// A name with characters that are special in a shell.
const SPECIAL_NAME: &str = "it's $(touch /tmp/x) `y` \"z\" & > < | ; * ~ \\";
/// Prefixes of the commands that some page must show.
const REQUIRED: [&str; 28] = [
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

/// Reads pages without a network, and collects their commands.
struct PageReader {
    router: Router,
    commands: BTreeSet<String>,
}

impl PageReader {
    fn new(syncs: &Syncs) -> Self {
        let app = App::new(syncs.clone(), Access::Open { name: "ann".to_owned() });
        Self { router: tidemill_console::router(app), commands: BTreeSet::new() }
    }

    /// Reads a page, and collects its commands.
    async fn read(&mut self, path: &str) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let bytes = to_bytes(response.into_body(), 16 * 1024 * 1024).await.unwrap();
        let page = String::from_utf8(bytes.to_vec()).unwrap();
        self.commands.extend(commands_of(&page));
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

/// Extracts the commands of a page: the contents of `code` elements, split where a hint offers two commands.
fn commands_of(page: &str) -> Vec<String> {
    let elements = page.split("<code>").skip(1).filter_map(|rest| rest.split_once("</code>"));
    let plain = |text: &str| {
        let text = text.replace("<bdi>", "").replace("</bdi>", "");
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let texts: Vec<String> = elements.map(|(text, _)| plain(text)).collect();
    let ours = texts.iter().filter_map(|text| text.strip_prefix("tidemill "));
    ours.flat_map(|text| text.split(", or tidemill ")).map(|text| format!("tidemill {text}")).collect()
}

/// Splits each command into words with a shell.
pub(crate) fn shell_words(commands: &BTreeSet<String>) -> Vec<Vec<String>> {
    let line = |command: &String| format!("set -- {command}\nprintf '%s\\0' \"$@\"\nprintf '\\036'\n");
    let script: String = commands.iter().map(line).collect();
    let output = std::process::Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let each = text.split_terminator('\u{1e}');
    each.map(|line| line.split_terminator('\0').map(str::to_owned).collect()).collect()
}

fn check(commands: &BTreeSet<String>) {
    let words = shell_words(commands);
    assert_eq!(words.len(), commands.len());
    for (command, mut words) in commands.iter().zip(words) {
        // A placeholder for a number.
        words.iter_mut().filter(|word| *word == "SIZE").for_each(|word| "1".clone_into(word));
        if let Err(error) = Arguments::try_parse_from(&words) {
            panic!("{command}: {error}");
        }
    }
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// Creates a worker, an agent, a pool, a schedule, a token and a dead letter.
async fn create_objects(fixture: &SyncFixture, graphs: &Graphs) {
    let (store, engine) = (&fixture.base.store, fixture.syncs.engine());
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
        projects: ProjectSet::All,
        token_id: None,
        boot_id: Uuid::new_v4(),
        secret_hash: "0".repeat(64),
        next_secret_hash: "0".repeat(64),
        dir_lock: None,
        isolation: None,
    };
    graphs.register(agent).await.unwrap();
    graphs.set_pool("narrow", 1).await.unwrap();
    let schedule = NewSchedule {
        name: "nightly".to_owned(),
        cron: "30 2 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: MissedPolicy::Once,
        overlap: OverlapPolicy::Skip,
    };
    engine.put_schedule(schedule).await.unwrap();
    let token = NewToken {
        name: SPECIAL_NAME.to_owned(),
        role: Role::Viewer,
        projects: ProjectSet::All,
        expires_in_secs: None,
    };
    engine.create_token(token, "ann").await.unwrap();
    let letter = NewMessage::new(WORK_ITEMS, "letter one", FEED, json!({"text": "x".repeat(9_000)}));
    let sent = store.send_locked(letter, WorkerId(Uuid::new_v4()), None).await.unwrap().unwrap();
    store.kill(sent.receipt, DeadReason::Permanent, None, None).await.unwrap();
}

/// Creates a failed run, a run whose label no worker has, and a stalled run.
async fn create_runs(engine: &Engine) -> [RunId; 3] {
    let failed = engine.queue(request()).await.unwrap().run_id;
    let claim = engine.claim(ClaimRuns::one("worker-1")).await.unwrap().remove(0);
    let end = FinishRun {
        run_id: failed.clone(),
        status: FinalStatus::Failed,
        metadata: json!({}),
        epoch: Some(claim.epoch),
    };
    engine.finish(vec![end], Some("worker-1")).await.unwrap();
    let labels = vec![SPECIAL_NAME.replace(',', "")];
    let waiting = engine.queue(QueueRun { labels, ..request() }).await.unwrap().run_id;
    let stalled = engine.queue(request()).await.unwrap().run_id;
    let claim = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-2") };
    engine.claim(claim).await.unwrap();
    engine.start(&stalled, &Holder::default()).await.unwrap();
    let later = host_now() + chrono::TimeDelta::minutes(6);
    engine.store().sweep(100, 3_600.0, Some(later)).await.unwrap();
    [failed, waiting, stalled]
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
async fn every_command_on_a_console_page_parses() {
    let fixture = SyncFixture::open(Kind::Sqlite, 400).await;
    let graphs = Graphs::new(fixture.syncs.engine().clone(), GraphSettings::default());
    let mut reader = PageReader::new(&fixture.syncs);
    create_objects(&fixture, &graphs).await;
    for run in create_runs(fixture.syncs.engine()).await {
        reader.read(&format!("/runs/{run}")).await;
    }
    // A queued sync, a planned one, and a cancelled one.
    let sync = fixture.queue(true).await;
    reader.read(&format!("/runs/{sync}")).await;
    let identity = Identity { name: "scheduler".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    fixture.syncs.schedule(identity, true, watch::Sender::new(false).subscribe()).await.unwrap();
    reader.read(&format!("/runs/{sync}")).await;
    assert!(fixture.syncs.cancel_sync(sync.as_str(), "ann", None).await.unwrap());
    reader.read(&format!("/runs/{sync}")).await;
    // A live graph, and an ended one.
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
    // An active feed and schedule, and paused ones.
    let feed = format!("/feeds/{FEED}");
    reader.read(&feed).await;
    reader.read_all().await;
    fixture.base.store.set_flag(pause(format!("feed:{FEED}"))).await.unwrap();
    fixture.syncs.engine().pause_schedule("nightly", None).await.unwrap();
    reader.read(&feed).await;
    reader.read_all().await;
    // An empty database, whose pages suggest first commands.
    let bare = Fixture::open_bare(Kind::Sqlite).await;
    let mut empty = PageReader::new(&syncs(&bare, quick()));
    empty.read_all().await;
    reader.commands.append(&mut empty.commands);
    check(&reader.commands);
    for required in REQUIRED {
        let is_shown = reader.commands.iter().any(|command| {
            let rest = command.strip_prefix("tidemill ").unwrap_or_default().replace('\'', "");
            rest.starts_with(required)
        });
        assert!(is_shown, "no page shows `tidemill {required}`: {:#?}", reader.commands);
    }
    let is_quoted = reader.commands.iter().any(|command| command.contains("--label 'it'\\''s $(touch"));
    assert!(is_quoted, "a label with special characters is quoted: {:#?}", reader.commands);
}

#[test]
fn check_fails_for_an_unknown_option() {
    let page = "<code>tidemill up, or tidemill scheduler</code> <code>other</code> \
                <code><bdi>tidemill run list --limt 3</bdi></code>";
    let commands: BTreeSet<String> = commands_of(page).into_iter().collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    assert!(commands.contains("tidemill scheduler"), "{commands:?}");
    assert!(std::panic::catch_unwind(|| check(&commands)).is_err(), "the misspelt option is found");
}
