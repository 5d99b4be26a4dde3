//! Detached commands: their output and their end are stored in a directory.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_supervisor::{
    BootInstant, CommandState, DetachedCommand, DetachedSpec, End, Exit, Isolation, Limits,
    SupervisorProcess, directories_in_use,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::fixture::{LONG, TIMEOUT, is_alive, not_tested, signal, test_program, until, until_dead};
use crate::isolation::processes_of;

pub(crate) fn spec(dir: &Path, script: &str) -> DetachedSpec {
    DetachedSpec {
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
        isolation: Isolation::default(),
    }
}

pub(crate) async fn start(dir: &Path, spec: &DetachedSpec, secrets: &[(&str, &str)]) -> Child {
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let started = DetachedCommand::new(dir)
        .start(&test_program(), &["detached"], spec, secrets, BootInstant::now())
        .await;
    started.expect("the supervisor did not start")
}

/// Starts a command from a separate process, which waits to be killed.
async fn start_from_other_process(dir: &Path, spec: &DetachedSpec) -> Child {
    let mut starter = Command::new(test_program())
        .args(["starter", dir.to_str().unwrap(), &serde_json::to_string(spec).unwrap()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line.as_deref(), Some("started"));
    starter
}

pub(crate) async fn exit(dir: &Path) -> Exit {
    let command = DetachedCommand::new(dir);
    let mut found = None;
    until("the command ends", || match command.state().unwrap() {
        CommandState::Exited(exit) => {
            found = Some(exit);
            true
        }
        CommandState::NotStarted | CommandState::Alive { .. } => false,
        CommandState::Lost => panic!("the supervisor is lost: {}", command.supervisor_log(1_000)),
    })
    .await;
    found.unwrap()
}

pub(crate) async fn pid(path: &Path) -> i32 {
    let mut pid = None;
    until("a process id is written", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        pid = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        pid.is_some()
    })
    .await;
    pid.unwrap()
}

pub(crate) fn log(dir: &Path) -> String {
    fs::read_to_string(DetachedCommand::new(dir).log_path()).unwrap()
}

fn code(code: i32) -> Exit {
    Exit { end: End::Code(code), timed_out: false, stopped: false }
}

#[tokio::test]
async fn exit_and_output_are_written_to_disk() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo one; echo two >&2; printf 'three'; env | grep -c .; exit 7");
    let mut child = start(dir.path(), &spec, &[]).await;
    child.wait().await.unwrap();
    assert_eq!(exit(dir.path()).await, code(7));
    let log = log(dir.path());
    assert!(log.contains("o one\n") && log.contains("e two\n"), "{log}");
    // PATH and MARK, and the variables that the shell adds itself (PWD, SHLVL, _).
    // The line may be before or after the line of the other stream.
    let count: u32 = log.lines().find_map(|line| line.strip_prefix("o three")).unwrap().parse().unwrap();
    assert!(count <= 5, "{log}");
}

#[tokio::test]
async fn command_outlives_its_killed_starter() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo $$ > pid; while ! test -e go; do sleep 0.02; done; echo done; exit 5");
    let starter = start_from_other_process(dir.path(), &spec).await;
    let pid = pid(&dir.path().join("pid")).await;
    signal(starter.id().unwrap().try_into().unwrap(), Signal::KILL);
    until("the starter dies", || !is_alive(starter.id().unwrap().try_into().unwrap())).await;
    assert!(is_alive(pid));
    assert_eq!(DetachedCommand::new(dir.path()).state().unwrap(), CommandState::Alive { started: true });
    fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(exit(dir.path()).await, code(5));
    assert_eq!(log(dir.path()), "o done\n");
}

#[tokio::test]
async fn concurrent_supervisors_start_the_command_once() {
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
async fn forbidden_command_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let command = DetachedCommand::new(dir.path());
    command.forbid_start().unwrap();
    start(dir.path(), &spec(dir.path(), "touch ran"), &[]).await.wait().await.unwrap();
    assert_eq!(command.state().unwrap(), CommandState::NotStarted);
    assert!(!dir.path().join("ran").exists());
}

/// The main process dies with its supervisor. Orphans are found by their session or by their environment.
#[tokio::test]
async fn orphans_of_a_killed_supervisor_are_found_and_killed() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo $$ > pid; sleep 1000 & echo $! > child; setsid sleep 1000 & echo $! > away; wait";
    let spec = spec(dir.path(), script);
    let mut child = start(dir.path(), &spec, &[]).await;
    let away = pid(&dir.path().join("away")).await;
    let (main, inner) = (pid(&dir.path().join("pid")).await, pid(&dir.path().join("child")).await);
    signal(child.id().unwrap().try_into().unwrap(), Signal::KILL);
    child.wait().await.unwrap();
    until_dead(&[main]).await;
    let command = DetachedCommand::new(dir.path());
    assert_eq!(command.state().unwrap(), CommandState::Lost);
    assert!(is_alive(inner) && is_alive(away));
    let variables = [format!("MARK={}", dir.path().display())];
    until("all orphans are dead", || command.kill_orphans(&variables).unwrap() == 0).await;
    assert!(!is_alive(inner) && !is_alive(away));
}

#[tokio::test]
async fn frozen_supervisor_can_be_killed() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(dir.path(), "echo $$ > pid; exec sleep 1000");
    let child = start(dir.path(), &spec, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    signal(child.id().unwrap().try_into().unwrap(), Signal::STOP);
    let command = DetachedCommand::new(dir.path());
    // Messages to a full pipe are dropped and never block.
    for _ in 0..10_000 {
        command.contact(BootInstant::now()).unwrap();
    }
    assert_eq!(command.state().unwrap(), CommandState::Alive { started: true });
    command.kill_supervisor().unwrap();
    until_dead(&[main]).await;
    until("the supervisor is gone", || command.state().unwrap() == CommandState::Lost).await;
}

/// It is found in the process table, can be stopped, and its time limit still applies.
#[tokio::test]
async fn command_with_removed_directory_is_found_and_stopped() {
    for stop in [true, false] {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("task");
        fs::create_dir(&dir).unwrap();
        let pid_file = parent.path().join("pid");
        let script = format!(
            "cd /; env > {0}.env; echo $$ > {0}; rm -rf {1}; sleep 1000",
            pid_file.display(),
            dir.display()
        );
        let mut spec = spec(&dir, &script);
        spec.timeout = (!stop).then_some(Duration::from_secs(2));
        let mut child = start(&dir, &spec, &[]).await;
        let pid = pid(&pid_file).await;
        until("the directory is gone", || !dir.exists()).await;
        assert_eq!(
            DetachedCommand::new(&dir).state().unwrap(),
            CommandState::NotStarted,
            "the removed directory must not give a state"
        );
        let mut found = SupervisorProcess::find_below(parent.path()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        let process = found.pop().unwrap();
        assert_eq!((process.dir(), process.pid()), (dir.as_path(), child.id().unwrap().try_into().unwrap()));
        let command = DetachedCommand::with_process(&dir, Some(std::sync::Arc::new(process)));
        assert_eq!(command.state().unwrap(), CommandState::Alive { started: true });
        assert!(command.contact(BootInstant::now()).unwrap());
        if stop {
            assert!(command.stop(LONG).unwrap());
        }
        child.wait().await.unwrap();
        until_dead(&[pid]).await;
        assert_eq!(command.state().unwrap(), CommandState::Lost);
        assert_eq!(SupervisorProcess::find_below(parent.path()).unwrap().len(), 0);
        let environment = fs::read_to_string(pid_file.with_extension("env")).unwrap();
        assert!(!environment.contains("TIDEMILL_SUPERVISED_DIR"), "{environment}");
    }
}

/// A command can put any text into its environment. The first process, which differs in nothing, is the control.
#[tokio::test]
async fn processes_of_other_users_and_namespaces_are_not_adopted() {
    const NOBODY: &str = "65534";
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("task");
    let other_namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let other_user = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
    for (number, prefix) in [&[][..], &other_namespace, &other_user].into_iter().enumerate() {
        if prefix.first() == Some(&"setpriv") && !rustix::process::geteuid().is_root() {
            return not_tested("only root can start a process of another user");
        }
        let mark = format!("4{:06}{number}", std::process::id());
        let variables = ["TIDEMILL_SUPERVISED_DIR", "MARK"].map(|name| format!("{name}={}", dir.display()));
        let mut words: Vec<&str> = prefix.to_vec();
        // The variables are set inside, because a program that starts another one has its caller's namespace.
        words.extend(["env", &variables[0], &variables[1], "sleep", &mark]);
        let mut process = Command::new(words[0]).args(&words[1..]).kill_on_drop(true).spawn().unwrap();
        let named = || {
            let is_named = |pid: &i32| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&variables[0])
            };
            processes_of(&mark).into_iter().find(is_named)
        };
        until("the process has its environment", || named().is_some()).await;
        let adopted = usize::from(prefix.is_empty());
        let found = SupervisorProcess::find_below(parent.path()).unwrap();
        assert_eq!(found.len(), adopted, "{prefix:?} {found:?}");
        assert_eq!(directories_in_use("MARK", parent.path()).unwrap().len(), adopted, "{prefix:?}");
        signal(named().unwrap(), Signal::KILL);
        process.wait().await.unwrap();
    }
}

#[tokio::test]
async fn stop_sends_sigterm_then_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let cooperative =
        spec(dir.path(), "trap 'echo bye; exit 3' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    start(dir.path(), &cooperative, &[]).await;
    pid(&dir.path().join("pid")).await;
    assert!(DetachedCommand::new(dir.path()).stop(LONG).unwrap());
    let ended = exit(dir.path()).await;
    assert_eq!(ended, Exit { end: End::Code(3), timed_out: false, stopped: true });
    assert!(log(dir.path()).contains("o bye\n"), "{}", log(dir.path()));

    let dir = tempfile::tempdir().unwrap();
    let stubborn = spec(dir.path(), "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    start(dir.path(), &stubborn, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    assert!(DetachedCommand::new(dir.path()).stop(Duration::from_millis(100)).unwrap());
    assert_eq!(exit(dir.path()).await.end, End::Signal(9));
    assert!(!is_alive(main));
    until("the supervisor no longer reads messages", || !DetachedCommand::new(dir.path()).kill().unwrap())
        .await;
}

#[tokio::test]
async fn command_is_stopped_at_its_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "sleep 1000 & sleep 1000");
    spec.timeout = Some(Duration::from_millis(300));
    let started = Instant::now();
    start(dir.path(), &spec, &[]).await;
    let ended = exit(dir.path()).await;
    assert_eq!(ended, Exit { end: End::Signal(15), timed_out: true, stopped: false });
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn command_lives_while_contact_is_confirmed() {
    const CONTACT_MAX: Duration = Duration::from_secs(6);
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "echo $$ > pid; sleep 1000");
    spec.contact_max = Some(CONTACT_MAX);
    start(dir.path(), &spec, &[]).await;
    let main = pid(&dir.path().join("pid")).await;
    let command = DetachedCommand::new(dir.path());
    let started = Instant::now();
    let mut last = BootInstant::now();
    while started.elapsed() < CONTACT_MAX * 2 {
        last = BootInstant::now();
        assert!(command.contact(last).unwrap());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_alive(main));
    assert_eq!(exit(dir.path()).await.end, End::LostContact);
    let passed = last.until(BootInstant::now());
    assert!(passed >= CONTACT_MAX, "{passed:?}");
    assert!(!is_alive(main));
}

#[tokio::test]
async fn expired_contact_prevents_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "touch ran");
    spec.contact_max = Some(Duration::from_millis(1));
    let contact = BootInstant::now();
    until("time passes", || contact.until(BootInstant::now()) > Duration::from_millis(5)).await;
    let command = DetachedCommand::new(dir.path());
    command.start(&test_program(), &["detached"], &spec, Vec::new(), contact).await.unwrap();
    assert_eq!(exit(dir.path()).await.end, End::LostContact);
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test]
async fn excess_output_is_truncated_with_a_notice() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "yes 0123456789 | head -c 5000000; echo the end");
    spec.log_bytes_max = 100_000;
    start(dir.path(), &spec, &[]).await;
    assert_eq!(exit(dir.path()).await, code(0));
    let log = log(dir.path());
    assert!(log.len() <= 100_200, "{}", log.len());
    assert!(log.ends_with("e (output truncated after 100000 bytes)\n"));
}

#[tokio::test]
async fn resource_limits_are_enforced() {
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
async fn missing_command_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(dir.path(), "");
    spec.command = vec!["no-such-command".to_owned()];
    start(dir.path(), &spec, &[]).await;
    let reason = "`no-such-command` was not found".to_owned();
    assert_eq!(exit(dir.path()).await.end, End::NotStarted { reason });
}

/// The command prints its secret, and the log holds the mask instead.
#[tokio::test]
async fn secrets_are_not_written_to_disk() {
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
