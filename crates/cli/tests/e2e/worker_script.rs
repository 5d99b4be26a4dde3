//! `examples/worker.sh` with a login that is a member of only the worker role.

mod faults;
mod rights;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::cluster::{Address, with_database};

use crate::fixture::{Fixture, Kind, wait_until};
use crate::ledger::{self, TASK};
use crate::process::{Output, Process, is_alive, run, wait_until_dead};

/// Roles of a prefix, which are dropped with this value. The database that they own must be dropped first.
pub(crate) struct Roles {
    server: String,
    names: Vec<String>,
}

impl Roles {
    /// Registers the roles that will be created.
    pub(crate) fn new(fixture: &Fixture, prefix: &str) -> Self {
        let server = with_database(&fixture.url, "postgres").expect("the address is valid");
        let names = ["owner", "worker", "reader", "login"].map(|name| format!("{prefix}_{name}")).to_vec();
        Self { server, names }
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        // The fixture, which runs plain SQL, is gone already. The script under test needs psql anyway.
        for name in &self.names {
            let text = format!("DROP ROLE IF EXISTS {name}");
            let _ = Command::new("psql").args(["-qX", "-d", &self.server, "-c", &text]).output();
        }
    }
}

/// A fixture with a login for the script.
pub(crate) struct Script {
    pub(crate) fixture: Fixture,
    /// Address of the database with the login.
    pub(super) url: String,
    pub(crate) prefix: String,
    _roles: Roles,
}

pub(super) const PASSWORD: &str = "pass-wörd'; --";
const PASSWORD_IN_URL: &str = "pass-w%C3%B6rd%27%3B%20--";

impl Script {
    pub(crate) fn new() -> Self {
        Self::on(Fixture::new(Kind::Postgres))
    }

    pub(super) fn on(fixture: Fixture) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("tm_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let roles = Roles::new(&fixture, &prefix);
        fixture.ok(&["roles", "create", "--prefix", &prefix]);
        let password = PASSWORD.replace('\'', "''");
        let login = format!("CREATE ROLE {prefix}_login LOGIN PASSWORD '{password}' IN ROLE {prefix}_worker");
        fixture.sql(&login).expect("the login is created");
        let server = Address::parse(&fixture.url).expect("the address is valid");
        let name = fixture.url.rsplit('/').next().unwrap_or_default().to_owned();
        let url =
            format!("postgres://{prefix}_login:{PASSWORD_IN_URL}@{}:{}/{name}", server.host, server.port);
        Self { fixture, url, prefix, _roles: roles }
    }

    /// `worker.sh` with these options, short intervals, and this script as the command of every run.
    pub(super) fn command(&self, options: &[&str], script: &str) -> Command {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/worker.sh");
        let mut command = Command::new(file);
        self.fixture.prepare(&mut command);
        command.args(["--name", "scribe", "--beat", "0.3", "--lease", "4", "--poll", "0.2", "--grace", "2"]);
        command.args(options).args(["--", "bash", "-c", script]);
        command.env("TIDEMILL_DATABASE", &self.url).env("LEDGER", self.fixture.path("ledger"));
        command.env("TMPDIR", self.fixture.path(""));
        command
    }

    pub(super) fn once(&self, script: &str) -> Output {
        run(&mut self.command(&["--once"], script))
    }

    pub(super) fn start(&self, name: &str, options: &[&str], script: &str) -> Process {
        Process::start(&self.fixture, name, &mut self.command(options, script))
    }

    /// Waits for an event that starts with `word`, and returns the numbers after it.
    pub(super) fn wait_for_event(&self, id: &RunId, word: &str) -> Vec<i32> {
        wait_until(&format!("the command prints {word}"), || {
            let events = self.fixture.events(id);
            let printed = events.iter().find_map(|event| event.message.strip_prefix(word))?;
            Some(printed.split_whitespace().filter_map(|number| number.parse().ok()).collect())
        })
    }
}

/// Output of the command, with the parts of long lines joined.
pub(super) fn lines(fixture: &Fixture, id: &RunId) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_continued = false;
    for event in fixture.events(id).into_iter().filter(|event| event.kind == EventKind::Log) {
        if event.payload.get("stream").is_none() {
            continue;
        }
        match lines.last_mut().filter(|_| is_continued) {
            Some(line) => line.push_str(&event.message),
            None => lines.push(event.message),
        }
        is_continued = event.payload["part"] == "piece";
    }
    lines
}

#[test]
fn success_is_reported_with_every_line_unchanged() {
    let script = Script::new();
    let id = script.fixture.queue(&[
        "--git-ref",
        "it's; DROP TABLE x",
        "--metadata",
        r#"{"who": "Änne's \"x\""}"#,
    ]);
    let ran = script.once(
        r#"jq -r .metadata.who; echo "$TIDEMILL_GIT_REF"; echo "'; DROP TABLE ops.runs; --"
           echo '"quoted" $HOME `id` \ %s'
           printf 'tab\there\nünïcödé 😀\n\n  spaces  \n'; printf 'bad \377\376 bytes\nnul \000 here\n'; echo :run
           for _ in $(seq 300); do echo same; done
           printf 'é😀%.0s' $(seq 5000); echo; echo to-stderr >&2; printf 'no newline'"#,
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let done = script.fixture.run(&id);
    assert_eq!((done.status, done.claimed_by.as_deref()), (RunState::Success, Some("scribe")), "{ran:?}");
    assert_eq!(done.metadata["exit_code"], 0);
    let lines = lines(&script.fixture, &id);
    let head = [
        "Änne's \"x\"",
        "it's; DROP TABLE x",
        "'; DROP TABLE ops.runs; --",
        "\"quoted\" $HOME `id` \\ %s",
        "tab\there",
        "ünïcödé 😀",
        "",
        "  spaces  ",
        "bad \u{FFFD}\u{FFFD} bytes",
        "nul  here",
        ":run",
    ];
    assert_eq!(lines[..head.len()], head);
    assert_eq!(lines.iter().filter(|line| *line == "same").count(), 300);
    let tail = &lines[lines.len() - 3..];
    assert!(
        tail[0] == "é😀".repeat(5000),
        "the long line was changed: {} characters",
        tail[0].chars().count()
    );
    assert_eq!(tail[1..], ["to-stderr", "no newline"]);
    let printed = format!("{:?}", script.fixture.events(&id));
    assert!(
        !printed.contains("pass-w") && !printed.contains("postgres://"),
        "an event contains access to the database"
    );
    assert!(!ran.stderr.contains("pass-w"), "{ran:?}");
}

#[test]
fn command_gets_the_run_and_no_database_access() {
    let script = Script::new();
    let id = script.fixture.queue(&["--git-sha", "abc", "--kind", "email"]);
    let mut command = script.command(&["--once"], "cat; env");
    command.env("PGPASSFILE", "/tmp/x").env("DATABASE_URL", "postgres://u:pw@h/x").env("KEPT", "yes");
    assert_eq!(run(&mut command).code, Some(0));
    let lines = lines(&script.fixture, &id);
    let given: serde_json::Value = serde_json::from_str(&lines[0]).expect("the run is JSON");
    assert_eq!((given["run_id"].as_str(), &given["epoch"]), (Some(id.as_str()), &1.into()));
    for variable in [
        &format!("TIDEMILL_RUN_ID={id}"),
        "TIDEMILL_PROJECT=shop",
        "TIDEMILL_ENV=staging",
        "TIDEMILL_ATTEMPT=1",
        "TIDEMILL_EPOCH=1",
        "TIDEMILL_RUN_KIND=email",
        "TIDEMILL_GIT_SHA=abc",
        "KEPT=yes",
    ] {
        assert!(lines.iter().any(|line| line == variable), "{variable}: {lines:?}");
    }
    let leaks = ["PG", "DATABASE_URL=", "TIDEMILL_DATABASE="];
    assert!(!lines.iter().any(|line| leaks.iter().any(|leak| line.starts_with(leak))), "{lines:?}");
}

#[test]
fn failure_is_reported_with_reason_and_last_lines() {
    let script = Script::new();
    let failed = script.fixture.queue(&[]);
    script.once("echo one; echo \"it's broken\" >&2; exit 3").ok();
    let run = script.fixture.run(&failed);
    assert_eq!((run.status, run.end_cause), (RunState::Failed, Some(EndCause::Reported)));
    assert_eq!((&run.metadata["exit_code"], &run.metadata["error"]), (&3.into(), &"exit code 3".into()));
    assert_eq!(run.metadata["output_tail"], serde_json::json!(["one", "it's broken"]));

    let killed = script.fixture.queue(&[]);
    script.once("kill -9 $$").ok();
    let run = script.fixture.run(&killed);
    assert_eq!((&run.metadata["signal"], &run.metadata["error"]), (&9.into(), &"killed by signal 9".into()));

    let late = script.fixture.queue(&["--timeout", "1s"]);
    script.once("sleep 600").ok();
    let run = script.fixture.run(&late);
    assert_eq!(run.status, RunState::Failed);
    assert_eq!(run.metadata["error"], "the run took longer than 1 s");
}

#[test]
fn failure_within_the_attempt_limit_is_retried() {
    let script = Script::new();
    let first = script.fixture.queue(&["--attempts", "3", "--backoff", "0s"]);
    let ran = run(&mut script.command(&["--drain"], r#"[ "$TIDEMILL_ATTEMPT" = 2 ]"#));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let states: Vec<RunState> = script.fixture.tries(&first).iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Failed, RunState::Success]);
}

#[test]
fn cancel_stops_the_command_and_its_children() {
    let script = Script::new();
    let id = script.fixture.queue(&[]);
    let mut worker =
        script.start("worker", &[], "sleep 600 & trap 'echo stopping; exit 5' TERM; echo pids $$ $!; wait");
    let pids = script.wait_for_event(&id, "pids ");
    assert_eq!(pids.len(), 2);
    script.fixture.ok(&["run", "cancel", id.as_str(), "--reason", "enough"]);
    let run = script.fixture.wait_for_end(&id);
    assert_eq!(
        (run.status, run.end_cause),
        (RunState::Cancelled, Some(EndCause::Cancelled)),
        "{}",
        worker.stderr()
    );
    assert_eq!(run.metadata["exit_code"], 5, "the command could clean up");
    assert!(lines(&script.fixture, &id).contains(&"stopping".to_owned()));
    wait_until_dead(&pids);

    // The worker continues.
    let next = script.fixture.queue(&[]);
    script.wait_for_event(&next, "pids ");
    script.fixture.ok(&["run", "cancel", next.as_str()]);
    script.fixture.wait_for_state(&next, RunState::Cancelled);
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.wait_for_exit(crate::fixture::TIMEOUT), Some(0));
}

/// The run ended meanwhile: reports of the script are refused and recorded once, and its command is killed.
#[test]
fn lost_run_is_dropped_and_its_command_killed() {
    let script = Script::new();
    let id = script.fixture.queue(&[]);
    let mut worker = script.start(
        "worker",
        &[],
        r#"[ "$TIDEMILL_GIT_REF" ] && exit; trap '' TERM; echo pids $$; while :; do echo more; sleep 0.05; done"#,
    );
    let pids = script.wait_for_event(&id, "pids ");
    script.fixture.sql(&format!("UPDATE ops.runs SET status = 'cancelled' WHERE run_id = '{id}'")).unwrap();
    wait_until_dead(&pids);
    // The worker executes other runs.
    let next = script.fixture.queue(&["--git-ref", "x"]);
    script.fixture.wait_for_state(&next, RunState::Success);
    assert_eq!(script.fixture.run(&id).end_cause, Some(EndCause::Statement));
    let refusals = script.fixture.messages(&id, EventKind::Refusal);
    let mut distinct = refusals.clone();
    distinct.dedup();
    assert!(!refusals.is_empty() && distinct == refusals, "recorded once per verb: {refusals:?}");
    assert!(worker.stderr().contains("belongs to others by now"), "{}", worker.stderr());
    worker.signal(rustix::process::Signal::TERM);
    assert_eq!(worker.wait_for_exit(crate::fixture::TIMEOUT), Some(0));
}

/// Three scripts and one `tidemill work` share the runs: each is executed exactly once.
#[test]
fn several_workers_execute_each_run_once() {
    let script = Script::new();
    let requests = ledger::requests(&script.fixture, "shared", 24);
    // On a busy machine a script may be stopped for seconds: no lease may end in this test.
    let args = ["--drain", "--lease", "300"];
    let mut workers: Vec<Process> = (0..3)
        .map(|number| script.start(&format!("script-{number}"), &args, &format!("SECS=0\n{TASK}")))
        .collect();
    workers.push(Process::worker(&script.fixture, "binary", &["--drain"], &format!("SECS=0.1\n{TASK}")));
    for worker in &mut workers {
        assert_eq!(worker.wait_for_exit(crate::fixture::TIMEOUT), Some(0));
    }
    let summary = ledger::check(&script.fixture, &requests);
    assert_eq!((summary.tries, summary.begun, summary.done), (24, 24, 24));
}

#[test]
fn usage_error_is_one_sentence() {
    let script = Script::new();
    script.fixture.queue(&[]);
    let before = script.fixture.dump();
    let bare = |args: &[&str]| {
        let mut command =
            Command::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/worker.sh"));
        script.fixture.prepare(&mut command);
        run(command.args(args).env("TIDEMILL_DATABASE", &script.url))
    };
    let help = bare(&["--help"]).ok();
    for word in ["Usage:", "--drain", "--once", "Exit codes: 0", "SIGTERM"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for (args, sentence) in [
        (&["--drain"][..], "there is no command"),
        (&["--frobnicate"], "`--frobnicate` is not an option"),
        (&["--beat", "soon", "--", "true"], "--beat is a number of seconds"),
        (&["--lease"], "--lease needs a value"),
    ] {
        let ran = bare(args);
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{ran:?}");
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(sentence), "{ran:?}");
    }
    for (url, code) in [
        (script.url.replace("pass-w", "not-it"), 1),
        (script.url.replace(&script.prefix, "nobody"), 1),
        ("postgres://127.0.0.1:1/x".to_owned(), 1),
        ("mysql://u:secret@h/x".to_owned(), 2),
    ] {
        // A server with trust authentication accepts any password.
        let ran = run(script
            .command(&["--once"], "true")
            .env("TIDEMILL_DATABASE", &url)
            .env("PGCONNECT_TIMEOUT", "3"));
        if url.contains("not-it") && ran.code == Some(0) {
            continue;
        }
        assert_eq!(ran.code, Some(code), "{url}: {ran:?}");
        assert!(!ran.stderr.contains("secret") && !ran.stderr.contains("not-it"), "{ran:?}");
    }
    if script.fixture.runs()[0].status == RunState::Queued {
        assert_eq!(script.fixture.dump(), before);
    }
}

#[test]
fn command_end_leaves_no_processes_or_files() {
    let script = Script::new();
    let id = script.fixture.queue(&[]);
    // A background process of the command keeps the output open, and is killed when the command has ended.
    script.once("sleep 600 & echo pid $!").ok();
    let pids = script.wait_for_event(&id, "pid ");
    assert!(!is_alive(pids[0]));
    assert_eq!(script.fixture.run(&id).status, RunState::Success);
    let left: Vec<_> =
        std::fs::read_dir(script.fixture.path("")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("tidemill-worker")), "{left:?}");
}
