//! Commands that outlive whoever started them: what they do, and their end, are in a directory.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_supervisor::{End, Exit, Lasting, LastingSpec, Limits, Moment, Seen, SupervisorProcess};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::stage::{LONG, PATIENCE, is_alive, signal, stand, until, until_dead};

fn spec(dir: &Path, script: &str) -> LastingSpec {
    LastingSpec {
        command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: vec![
            ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ("MARK".to_owned(), dir.display().to_string()),
        ],
        dir: dir.to_owned(),
        limits: Limits::default(),
        timeout: None,
        grace: Duration::from_secs(5),
        contact_max: None,
        line_bytes_max: 8_000,
        log_bytes_max: 1_000_000,
    }
}

async fn start(dir: &Path, spec: &LastingSpec, secrets: &[(&str, &str)]) -> Child {
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let started = Lasting::new(dir).start(&stand(), &["lasting"], spec, secrets, Moment::now()).await;
    started.expect("the supervisor starts")
}

/// Starts a command from a process of its own, which waits to be killed.
async fn start_elsewhere(dir: &Path, spec: &LastingSpec) -> Child {
    let mut starter = Command::new(stand())
        .args(["starter", dir.to_str().unwrap(), &serde_json::to_string(spec).unwrap()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line.as_deref(), Some("begun"));
    starter
}

async fn exit(dir: &Path) -> Exit {
    let lasting = Lasting::new(dir);
    let mut seen = None;
    until("the command ends", || match lasting.look().unwrap() {
        Seen::Exited(exit) => {
            seen = Some(exit);
            true
        }
        Seen::Nothing | Seen::Alive { .. } => false,
        Seen::Lost => panic!("the supervisor is lost: {}", lasting.complaints(1_000)),
    })
    .await;
    seen.unwrap()
}

async fn pid(path: &Path) -> i32 {
    let mut pid = None;
    until("a process id is written", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

fn log(dir: &Path) -> String {
    fs::read_to_string(Lasting::new(dir).log_path()).unwrap()
}

fn code(code: i32) -> Exit {
    Exit { end: End::Code(code), timed_out: false, stopped: false }
}

#[tokio::test]
async fn the_end_and_the_output_are_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo one; echo two >&2; printf 'three'; env | grep -c .; exit 7");
    let mut child = start(dir.path(), &spec, &[]).await;
    child.wait().await.unwrap();
    assert_eq!(exit(dir.path()).await, code(7));
    let log = log(dir.path());
    assert!(log.contains("o one\n") && log.contains("e two\n"), "{log}");
    // PATH, MARK, and what the shell adds itself (PWD, SHLVL, _): nothing of ours.
    // The line may stand before or after the one of the other stream.
    let count: u32 = log.lines().find_map(|line| line.strip_prefix("o three")).unwrap().parse().unwrap();
    assert!(count <= 5, "{log}");
}

#[tokio::test]
async fn whoever_started_it_may_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo $$ > pid; while ! test -e go; do sleep 0.02; done; echo done; exit 5");
    let starter = start_elsewhere(dir.path(), &spec).await;
    let pid = pid(&dir.path().join("pid")).await;
    signal(starter.id().unwrap().try_into().unwrap(), Signal::KILL);
    until("the starter dies", || !is_alive(starter.id().unwrap().try_into().unwrap())).await;
    assert!(is_alive(pid));
    assert_eq!(Lasting::new(dir.path()).look().unwrap(), Seen::Alive { started: true });
    fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(exit(dir.path()).await, code(5));
    assert_eq!(log(dir.path()), "o done\n");
}

/// Shows that a command is started once, however many supervisors are started on its directory at once.
#[tokio::test]
async fn a_command_is_started_once() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo ran >> ran; sleep 0.3");
    let mut children = Vec::new();
    for _ in 0..4 {
        children.push(start(dir.path(), &spec, &[]).await);
    }
    for mut child in children {
        child.wait().await.unwrap();
    }
    assert_eq!(exit(dir.path()).await, code(0));
    start(dir.path(), &spec, &[]).await.wait().await.unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("ran")).unwrap(), "ran\n");
}

#[tokio::test]
async fn what_is_forbidden_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let lasting = Lasting::new(dir.path());
    lasting.forbid().unwrap();
    start(dir.path(), &spec(dir.path(), "touch ran"), &[]).await.wait().await.unwrap();
    assert_eq!(lasting.look().unwrap(), Seen::Nothing);
    assert!(!dir.path().join("ran").exists());
}

/// Shows that the main process dies with its supervisor, and that the rest is found: what stayed in the
/// session, and what left it.
#[tokio::test]
async fn what_a_killed_supervisor_leaves_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid; sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > away; wait";
    let spec = spec(dir.path(), script);
    let mut child = start(dir.path(), &spec, &[]).await;
    let away = pid(&dir.path().join("away")).await;
    let (main, inner) = (pid(&dir.path().join("pid")).await, pid(&dir.path().join("child")).await);
    signal(child.id().unwrap().try_into().unwrap(), Signal::KILL);
    child.wait().await.unwrap();
    until_dead(&[main]).await;
    let lasting = Lasting::new(dir.path());
    assert_eq!(lasting.look().unwrap(), Seen::Lost);
    assert!(is_alive(inner) && is_alive(away));
    let marks = [format!("MARK={}", dir.path().display())];
    until("nothing is left", || lasting.kill_remains(&marks).unwrap() == 0).await;
    assert!(!is_alive(inner) && !is_alive(away));
}

#[tokio::test]
async fn a_frozen_supervisor_can_be_done_away_with() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo $$ > pid; exec sleep 1000");
    let child = start(dir.path(), &spec, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    signal(child.id().unwrap().try_into().unwrap(), Signal::STOP);
    let lasting = Lasting::new(dir.path());
    // Orders are taken as long as there is room for them, and never block.
    for _ in 0..10_000 {
        lasting.contact(Moment::now()).unwrap();
    }
    assert_eq!(lasting.look().unwrap(), Seen::Alive { started: true });
    lasting.kill_supervisor().unwrap();
    until_dead(&[main]).await;
    until("the supervisor is gone", || lasting.look().unwrap() == Seen::Lost).await;
}

/// Shows that a command whose directory is removed is found in the process table, obeys, and keeps its time limit.
#[tokio::test]
async fn command_without_directory_is_found_and_obeys() {
    for is_told in [true, false] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("task");
        fs::create_dir(&dir).unwrap();
        let note = parent.path().join("pid");
        let script = format!(
            "cd /; env > {0}.env; echo $$ > {0}; rm -rf {1}; sleep 1000",
            note.display(),
            dir.display()
        );
        let mut spec = spec(&dir, &script);
        spec.timeout = (!is_told).then_some(Duration::from_secs(2));
        let mut child = start(&dir, &spec, &[]).await;
        let pid = pid(&note).await;
        until("the directory is gone", || !dir.exists()).await;
        assert_eq!(Lasting::new(&dir).look().unwrap(), Seen::Nothing, "the directory alone knows nothing");
        let mut found = SupervisorProcess::find_below(parent.path()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let process = found.pop().unwrap();
        assert_eq!((process.dir(), process.pid()), (dir.as_path(), child.id().unwrap().try_into().unwrap()));
        let lasting = Lasting::with_process(&dir, Some(std::sync::Arc::new(process)));
        assert_eq!(lasting.look().unwrap(), Seen::Alive { started: true });
        assert!(lasting.contact(Moment::now()).unwrap());
        if is_told {
            assert!(lasting.stop(LONG).unwrap());
        }
        child.wait().await.unwrap();
        until_dead(&[pid]).await;
        assert_eq!(lasting.look().unwrap(), Seen::Lost);
        assert_eq!(SupervisorProcess::find_below(parent.path()).unwrap().len(), 0);
        let environment = fs::read_to_string(note.with_extension("env")).unwrap();
        assert!(!environment.contains("TIDEMILL_SUPERVISED_DIR"), "{environment}");
    }
}

#[tokio::test]
async fn a_stop_asks_first_and_kills_then() {
    let dir = tempfile::tempdir().unwrap();
    let asked = spec(dir.path(), "trap 'echo bye; exit 3' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    start(dir.path(), &asked, &[]).await;
    pid(&dir.path().join("pid")).await;
    assert!(Lasting::new(dir.path()).stop(LONG).unwrap());
    let ended = exit(dir.path()).await;
    assert_eq!(ended, Exit { end: End::Code(3), timed_out: false, stopped: true });
    assert!(log(dir.path()).contains("o bye\n"), "{}", log(dir.path()));

    let dir = tempfile::tempdir().unwrap();
    let deaf = spec(dir.path(), "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    start(dir.path(), &deaf, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    assert!(Lasting::new(dir.path()).stop(Duration::from_millis(100)).unwrap());
    assert_eq!(exit(dir.path()).await.end, End::Signal(9));
    assert!(!is_alive(main));
    until("nobody listens", || !Lasting::new(dir.path()).kill().unwrap()).await;
}

#[tokio::test]
async fn time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "sleep 1000 & sleep 1000");
    spec.timeout = Some(Duration::from_millis(300));
    let begun = Instant::now();
    start(dir.path(), &spec, &[]).await;
    let ended = exit(dir.path()).await;
    assert_eq!(ended, Exit { end: End::Signal(15), timed_out: true, stopped: false });
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn lost_contact_kills_and_contact_keeps() {
    const CONTACT_MAX: Duration = Duration::from_secs(6);
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "echo $$ > pid; sleep 1000");
    spec.contact_max = Some(CONTACT_MAX);
    start(dir.path(), &spec, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    let lasting = Lasting::new(dir.path());
    let begun = Instant::now();
    let mut last = Moment::now();
    while begun.elapsed() < CONTACT_MAX * 2 {
        last = Moment::now();
        assert!(lasting.contact(last).unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_alive(main));
    assert_eq!(exit(dir.path()).await.end, End::LostContact);
    let passed = last.until(Moment::now());
    assert!(passed >= CONTACT_MAX, "{passed:?}");
    assert!(!is_alive(main));
}

#[tokio::test]
async fn contact_of_long_ago_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "touch ran");
    spec.contact_max = Some(Duration::from_millis(1));
    let contact = Moment::now();
    until("time passes", || contact.until(Moment::now()) > Duration::from_millis(5)).await;
    let lasting = Lasting::new(dir.path());
    lasting.start(&stand(), &["lasting"], &spec, Vec::new(), contact).await.unwrap();
    assert_eq!(exit(dir.path()).await.end, End::LostContact);
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test]
async fn output_is_bounded_and_the_log_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "yes 0123456789 | head -c 5000000; echo the end");
    spec.log_bytes_max = 100_000;
    start(dir.path(), &spec, &[]).await;
    assert_eq!(exit(dir.path()).await, code(0));
    let log = log(dir.path());
    assert!(log.len() <= 100_200, "{}", log.len());
    assert!(log.ends_with("e (the rest is left out: more than 100000 bytes of output)\n"));
}

#[tokio::test]
async fn limits_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = spec(dir.path(), "exec head -c 2000000 /dev/zero > large");
    file.limits.file_bytes = Some(1_000_000);
    start(dir.path(), &file, &[]).await;
    assert_eq!(exit(dir.path()).await.end, End::Signal(25));
    assert_eq!(fs::metadata(dir.path().join("large")).unwrap().len(), 1_000_000);

    let dir = tempfile::tempdir().unwrap();
    let mut processor = spec(dir.path(), "exec sh -c 'while :; do :; done'");
    processor.limits.cpu_secs = Some(1);
    start(dir.path(), &processor, &[]).await;
    assert_eq!(exit(dir.path()).await.end, End::Signal(24));

    let dir = tempfile::tempdir().unwrap();
    let mut memory = spec(dir.path(), "exec head -c 1000000000 /dev/zero | tail -c 1 > /dev/null; echo $?");
    memory.command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=400M", "count=1"].map(str::to_owned).into();
    memory.limits.memory_bytes = Some(200_000_000);
    start(dir.path(), &memory, &[]).await;
    assert_eq!(exit(dir.path()).await, code(1));
    assert!(log(dir.path()).contains("memory"), "{}", log(dir.path()));
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "");
    spec.command = vec!["no-such-command".to_owned()];
    start(dir.path(), &spec, &[]).await;
    let reason = "`no-such-command` was not found".to_owned();
    assert_eq!(exit(dir.path()).await.end, End::NotStarted { reason });
}

/// Shows that a secret reaches the command and nothing on disk, though the command says it aloud.
#[tokio::test]
async fn secrets_are_nowhere_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "test ${#KEY} = 11 && echo \"key is $KEY\" && echo $KEY >&2 && tr '\\0' ' ' < /proc/$PPID/cmdline";
    let spec = spec(dir.path(), script);
    start(dir.path(), &spec, &[("KEY", "open-sesame")]).await;
    assert_eq!(exit(dir.path()).await, code(0), "{}", log(dir.path()));
    let log = log(dir.path());
    assert!(log.contains("o key is •••\n") && log.contains("e •••\n"), "{log}");
    let found = Command::new("grep").args(["-r", "open-sesame", "."]).current_dir(dir.path()).output();
    let found = found.await.unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
}
