//! Jobs that try to escape: each attack must fail with isolation, and must succeed without it.
//!
//! The second half, the control, shows that the attack itself works. Where a mechanism is missing, the tests say so in
//! a sentence and do nothing; in continuous integration (`CI=true`) that is a failure.

mod resources;
mod shared_machine;
mod trace;

use crate::fixture::{Fixture, TIMEOUT, is_alive, kill, order, success, until};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;
use tidemill_core::isolation::IsolationReport;
use tidemill_core::task::TaskResult;
use tokio::process::Child;

/// Whether tasks of an agent are isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Isolated,
    /// The control, in which every attack succeeds.
    Off,
}

/// A fixture whose files another user can see, with credentials of the agent.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in [("secrets", 0o600), ("token", 0o644)] {
        fs::write(fixture.path(name), "KEY=hunter2-file\n").unwrap();
        fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fixture
}

/// Says what a test could not test. Written without the macros, whose output the test runner hides.
fn not_tested(what: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "not tested: {what}");
    let _ = writeln!(io::stderr(), "not tested: {what}");
}

/// Namespaces for the tasks of an agent that is not root: they have its user, so it cannot require user ids.
const NAMESPACES: (&str, &str) = ("TEST_ISOLATION", "auto");

/// The best isolation that the user of the tests can have.
fn best_isolation() -> (&'static str, String) {
    let (name, mode) = if geteuid().is_root() { ("TEST_ISOLATION", "required") } else { NAMESPACES };
    (name, mode.to_owned())
}

/// Starts an agent; returns `None` if this machine cannot isolate tasks.
async fn agent(fixture: &Fixture, mode: Mode) -> Option<Child> {
    agent_with(fixture, mode, &[]).await
}

/// Starts an agent with environment variables.
async fn agent_with(fixture: &Fixture, mode: Mode, variables: &[(&'static str, String)]) -> Option<Child> {
    let mut environment = vec![
        ("AGENT_CREDENTIAL", "hunter2-environment".to_owned()),
        ("TEST_SECRETS", fixture.path("secrets").display().to_string()),
        ("TEST_HIDDEN", fixture.path("token").display().to_string()),
    ];
    environment.extend_from_slice(variables);
    if mode == Mode::Isolated {
        environment.push(best_isolation());
    }
    let child = fixture.process_with(&[], &environment);
    registered(fixture, child).await.map(|(child, _)| child)
}

/// Waits for the registration; returns `None` if the agent refused to start, or has no namespaces for its tasks.
async fn registered(fixture: &Fixture, mut child: Child) -> Option<(Child, IsolationReport)> {
    let missing = "this machine does not allow user ids, PID and mount namespaces for tasks";
    let started = Instant::now();
    loop {
        let report = fixture.server.state().registered.last().map(|agent| agent.isolation.clone());
        if let Some(report) = report {
            let report = report.expect("the agent reports its isolation");
            if report.pid_namespace.reason().is_some_and(|reason| reason != "isolation is off") {
                not_tested(missing);
                return None;
            }
            return Some((child, report));
        }
        if child.try_wait().unwrap().is_some() {
            not_tested(missing);
            return None;
        }
        assert!(started.elapsed() < TIMEOUT, "the agent did not register");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Runs one job on an agent; returns its result and its output.
async fn run(fixture: &Fixture, order: Value) -> (TaskResult, String) {
    let task = order["task_id"].as_str().unwrap().to_owned();
    fixture.server.order(order);
    let result = fixture.result(&task).await;
    (result, fixture.server.log(&task).join("\n"))
}

/// Runs a script as a job with isolation and without; returns both outputs.
async fn outputs(script: &str) -> Option<[String; 2]> {
    let mut outputs = [String::new(), String::new()];
    for (mode, output) in [Mode::Isolated, Mode::Off].into_iter().zip(&mut outputs) {
        let fixture = fixture().await;
        let agent = agent(&fixture, mode).await?;
        let line = script.replace("AGENT_PID", &agent.id().unwrap().to_string());
        *output = run(&fixture, order(&fixture, "attack", &line)).await.1;
        kill(agent).await;
    }
    Some(outputs)
}

/// A number for `sleep` by which a test finds the process.
fn mark() -> String {
    format!("1{:09}", uuid::Uuid::new_v4().as_u128() % 1_000_000_000)
}

/// Live processes with this text in their command line.
fn processes_of(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_mark = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(mark) && is_alive(*pid)
    };
    pids.filter(has_mark).collect()
}

/// The build machines allow user ids, PID namespaces and `cgroup.kill`: there the suite tests all of them.
#[tokio::test]
async fn probe_finds_the_mechanisms_of_the_build_machine() {
    if !geteuid().is_root() {
        return not_tested("user ids of tasks need root");
    }
    let fixture = fixture().await;
    let child = fixture.process_with(&[], &[("TEST_ISOLATION", "required".to_owned())]);
    let Some((child, report)) = registered(&fixture, child).await else { return };
    assert_eq!(report.missing_boundaries(), [], "{report}");
    // The task runs as the user id that the agent reserved for it.
    let mut gate = resources::Gate::new(&fixture);
    fixture.server.order(order(&fixture, "user", "id -u; read line < %gate"));
    until("the task prints its user", || !fixture.server.log("user-001").is_empty()).await;
    let claimed = fs::read_to_string(fixture.agent_dir().join("tasks/user-001/user"));
    let user = claimed.unwrap();
    assert_eq!(fixture.server.log("user-001"), [format!("stdout: {user}")]);
    assert_ne!(user, geteuid().as_raw().to_string());
    gate.open();
    assert_eq!(fixture.result("user-001").await, success());
    if let Some(reason) = report.cgroup_kill.reason() {
        not_tested(&format!("cgroup.kill: {reason}"));
    }
    kill(child).await;
}

#[tokio::test]
async fn task_cannot_read_processes_of_agent_and_server() {
    let server = std::process::id();
    let script = format!(
        "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep AGENT_CREDENTIAL; \
         test -e /proc/AGENT_PID/environ && echo sees-agent; test -e /proc/{server}/environ && echo sees-server; \
         test -w /proc/AGENT_PID/mem && echo writes-memory; true"
    );
    let Some([isolated, control]) = outputs(&script).await else { return };
    assert_eq!(isolated, "");
    for evidence in ["hunter2-environment", "sees-agent", "sees-server", "writes-memory"] {
        assert!(control.contains(evidence), "{control}");
    }
}

#[tokio::test]
async fn task_cannot_read_credentials_and_other_tasks() {
    let script = "cat %secrets %token %agent/agent.json %agent/tasks/*/order.json %agent/tasks/*/run.json 2>/dev/null; \
                  ls -a %agent %agent/tasks 2>/dev/null; true";
    let Some([isolated, control]) = outputs(script).await else { return };
    for evidence in ["hunter2-file", "\"secret\"", "RUNJOB", "log_bytes_max"] {
        assert!(control.contains(evidence), "{evidence}: {control}");
        assert!(!isolated.contains(evidence), "{evidence}: {isolated}");
    }
    assert!(!isolated.contains("agent.json") && isolated.contains("attack-001"), "{isolated}");
}

/// The agent writes the outputs of all jobs to its store. The files of others are out of reach for a task.
#[tokio::test]
async fn task_cannot_reach_a_store_of_files() {
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let store = fixture.path("store");
        fs::create_dir(&store).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o777)).unwrap();
        let environment = if mode == Mode::Isolated { vec![best_isolation()] } else { Vec::new() };
        let url = format!("file://{}", store.display());
        let child = fixture.process_with(&[&url], &environment);
        let Some((agent, _)) = registered(&fixture, child).await else { return };
        let mut kept = order(&fixture, "kept", "echo hunter2-output > out");
        kept["work"]["outputs"] = json!({"out": "out"});
        assert_eq!(run(&fixture, kept).await.0, success());
        let attack = "find %store -type f -exec chmod a+r {} + 2>/dev/null; cat $(find %store -type f) < /dev/null; \
                      echo x > %store/planted && echo planted; true";
        let (_, output) = run(&fixture, order(&fixture, "attack", attack)).await;
        for evidence in ["hunter2-output", "planted"] {
            let is_seen = output.contains(&format!("stdout: {evidence}"));
            assert_eq!(is_seen, mode == Mode::Off, "{mode:?} {evidence}: {output}");
        }
        assert_eq!(store.join("planted").exists(), mode == Mode::Off);
        kill(agent).await;
    }
}

#[tokio::test]
async fn task_gets_the_secrets_that_it_names_only() {
    let fixture = fixture().await;
    let Some(agent) = agent(&fixture, Mode::Isolated).await else { return };
    let mut naming = order(&fixture, "naming", "test ${#KEY} = 12");
    naming["work"]["secrets"] = json!(["KEY"]);
    assert_eq!(run(&fixture, naming).await.0, success());
    let (result, output) = run(&fixture, order(&fixture, "other", "env; test -z \"$KEY\"")).await;
    assert_eq!(result, success());
    assert!(!output.contains("hunter2") && !output.contains("AGENT_CREDENTIAL"), "{output}");
    kill(agent).await;
}

/// The victims are a process outside, and a process of another task.
#[tokio::test]
async fn task_cannot_kill_the_agent_or_another_task() {
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let Some(agent) = agent(&fixture, mode).await else { return };
        let (outside, inside) = (mark(), mark());
        let mut victim =
            tokio::process::Command::new("sleep").arg(&outside).kill_on_drop(true).spawn().unwrap();
        fixture.server.order(order(&fixture, "victim", &format!("exec sleep {inside}")));
        until("the other task runs", || !processes_of(&inside).is_empty()).await;
        let other = processes_of(&inside)[0];
        let line = format!("kill -9 {} {other}; true", victim.id().unwrap());
        run(&fixture, order(&fixture, "attack", &line)).await;
        if mode == Mode::Isolated {
            assert!(victim.try_wait().unwrap().is_none() && !processes_of(&inside).is_empty());
            kill_process(Pid::from_raw(processes_of(&inside)[0]).unwrap(), Signal::KILL).unwrap();
        }
        until("the other task ends", || processes_of(&inside).is_empty()).await;
        fixture.result("victim-001").await;
        assert_eq!(is_alive(victim.id().unwrap().try_into().unwrap()), mode == Mode::Isolated);
        victim.kill().await.unwrap();
        kill(agent).await;
    }
}

/// Another session, no environment, no parent: the process has nothing in common with its task but its isolation.
#[tokio::test]
async fn no_process_outlives_its_task() {
    // The subshell ends first, so that the process is no descendant of the command when the supervisor dies. The name
    // of the program shows that `setsid` and `env` are done; their command lines end in the same words.
    let daemon = "pid=$(setsid env -i sleep MARK > /dev/null 2>&1 & echo $!); \
                  until grep -qx sleep /proc/$pid/comm; do :; done; kill -9 $PPID; exit 3";
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let Some(agent) = agent(&fixture, mode).await else { return };
        let mark = mark();
        let (result, _) = run(&fixture, order(&fixture, "attack", &daemon.replace("MARK", &mark))).await;
        let left = processes_of(&mark);
        for pid in &left {
            kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
        }
        assert_eq!(left.is_empty(), mode == Mode::Isolated, "{mode:?}: {left:?}");
        if mode == Mode::Isolated {
            assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?}");
        }
        kill(agent).await;
    }
}

/// The agent restarts while the task runs, and kills it: nothing of it is left, and its user id is free again.
#[tokio::test]
async fn restarted_agent_ends_an_isolated_task() {
    let fixture = fixture().await;
    let Some(first) = agent(&fixture, Mode::Isolated).await else { return };
    let mark = mark();
    let line = format!("(setsid env -i sleep {mark} &); exec sleep {mark}");
    fixture.server.order(order(&fixture, "job", &line));
    until("both processes run", || processes_of(&mark).len() == 2).await;
    kill(first).await;
    assert_eq!(processes_of(&mark).len(), 2);
    let user = fs::read_to_string(fixture.agent_dir().join("tasks/job-001/user")).ok();
    fixture.server.state().registered.clear();
    let second = agent(&fixture, Mode::Isolated).await.unwrap();
    if let Some(user) = &user {
        // Two live tasks never share an id, also after a restart.
        fixture.server.order(order(&fixture, "beside", "id -u"));
        assert_eq!(fixture.result("beside-001").await, success());
        assert_ne!(fixture.server.log("beside-001"), [format!("stdout: {user}")]);
    }
    fixture.server.order(crate::fixture::cancel("job"));
    assert_eq!(fixture.result("job-001").await, TaskResult::Stopped);
    assert_eq!(processes_of(&mark), Vec::<i32>::new());
    fixture.until_clean().await;
    kill(second).await;
}

#[tokio::test]
async fn task_cannot_write_outside_of_its_directory() {
    if !geteuid().is_root() {
        return not_tested("tasks of an agent that is not root have the files of its user");
    }
    let script = "echo x > %outside && echo wrote-outside; echo x > %agent/new && echo wrote-agent; \
                  echo x > /etc/tidemill-escape-test && rm /etc/tidemill-escape-test && echo wrote-system; \
                  echo x > \"$TMPDIR/mine\" && echo x > mine && echo wrote-own";
    let Some([isolated, control]) = outputs(script).await else { return };
    assert!(isolated.contains("stdout: wrote-own") && isolated.matches("stdout:").count() == 1, "{isolated}");
    assert_eq!(control.matches("stdout: wrote").count(), 4, "{control}");
}

#[tokio::test]
async fn task_cannot_leave_its_control_group() {
    if !geteuid().is_root() {
        return not_tested("control groups need root or a delegated group");
    }
    let script = "for m in $(grep ' - cgroup2 ' /proc/self/mountinfo | cut -d' ' -f5); do \
                  echo $$ > $m/cgroup.procs && echo moved; \
                  mkdir $m/tidemill-escape && rmdir $m/tidemill-escape && echo made; \
                  done; true";
    let Some([isolated, control]) = outputs(script).await else { return };
    assert!(!isolated.contains("stdout:"), "{isolated}");
    assert!(control.contains("stdout: moved") && control.contains("stdout: made"), "{control}");
}

/// Links must lead the agent neither out of the directory when it collects, nor when it removes files.
#[tokio::test]
async fn planted_links_lead_nowhere() {
    let fixture = fixture().await;
    let Some(agent) = agent(&fixture, Mode::Isolated).await else { return };
    let line = "ln -s %token out; ln -s %agent/workspaces deep; mkdir d; ln -s %token d/out; \
                ln %token hard 2>/dev/null; \
                ln -s / root; rm -f x; ln -s %token x; chmod 000 d; true";
    let mut job = order(&fixture, "job", line);
    job["work"]["outputs"] = json!({"out": "out", "hard": "hard", "deep": "d/out"});
    let (result, _) = run(&fixture, job).await;
    let TaskResult::Ended { exit_code: 0, unmatched, .. } = &result else { panic!("{result:?}") };
    assert_eq!(unmatched.len(), 3, "{result:?}");
    assert_eq!(fixture.server.result("job-001").unwrap().outputs, []);
    fixture.until_clean().await;
    assert_eq!(fixture.read("token"), "KEY=hunter2-file\n");
    assert!(Path::new("/etc").exists());
    kill(agent).await;
}

#[tokio::test]
async fn outputs_and_inputs_pass_between_isolated_tasks() {
    let fixture = fixture().await;
    let Some(agent) = agent(&fixture, Mode::Isolated).await else { return };
    let mut first = order(&fixture, "first", "mkdir -p a/b && echo one > a/b/out && chmod 700 a");
    first["work"]["outputs"] = json!({"out": "a/b/out"});
    assert_eq!(run(&fixture, first).await.0, success());
    let outputs = fixture.server.result("first-001").unwrap().outputs;
    let mut second = order(&fixture, "second", "cat a/b/out && echo two >> a/b/out && cat a/b/out");
    second["work"]["inputs"] =
        crate::fixture::inputs("first", Some(crate::fixture::agent_id(&fixture)), &outputs);
    let (result, output) = run(&fixture, second).await;
    assert_eq!(result, success(), "{output}");
    assert_eq!(output, "stdout: one\nstdout: one\nstdout: two");
    fixture.until_clean().await;
    kill(agent).await;
}

#[tokio::test]
async fn limits_hold_in_isolation() {
    let fixture = fixture().await;
    let Some(agent) = agent(&fixture, Mode::Isolated).await else { return };
    let fill = "dd if=/dev/zero of=/dev/null bs=400M count=1";
    let mut memory = order(&fixture, "memory", fill);
    memory["work"]["limits"] = json!({"memory_bytes": 200_000_000});
    let (result, _) = run(&fixture, memory).await;
    assert!(!matches!(result, TaskResult::Ended { exit_code: 0, .. }), "{result:?}");
    assert_eq!(run(&fixture, order(&fixture, "control", fill)).await.0, success());
    let mut disk = order(&fixture, "disk", "exec dd if=/dev/zero of=big bs=1M count=20");
    disk["work"]["limits"] = json!({"output_bytes": 1_000_000});
    let (result, _) = run(&fixture, disk).await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 153, .. }), "{result:?}");
    kill(agent).await;
}

/// An agent that is not root uses a user namespace. Its tasks have its user, but see neither its processes nor its
/// directory.
#[tokio::test]
async fn agent_without_root_isolates_in_a_user_namespace() {
    let fixture = fixture().await;
    let environment = [
        (NAMESPACES.0, NAMESPACES.1.to_owned()),
        ("AGENT_CREDENTIAL", "hunter2-environment".to_owned()),
        ("TEST_HIDDEN", fixture.path("token").display().to_string()),
    ];
    let child = fixture.process_of_another_user_with(&environment);
    let Some((agent, report)) = registered(&fixture, child).await else { return };
    let shared = "same user as the agent, which is not root";
    assert_eq!(report.missing_boundaries(), [("user ids", shared)]);
    let mark = mark();
    let line = format!(
        "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep AGENT_CREDENTIAL; cat %token; ls %agent/tasks; \
         ls %agent; grep CapEff /proc/self/status; setsid env -i sleep {mark} & kill -9 $PPID; exit 3"
    );
    let (result, output) = run(&fixture, order(&fixture, "attack", &line)).await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?} {output}");
    assert_eq!(output, "stdout: attack-001\nstdout: tasks\nstdout: CapEff:\t0000000000000000");
    assert_eq!(processes_of(&mark), Vec::<i32>::new());
    fixture.until_clean().await;
    kill(agent).await;
}

/// Its tasks could change every file of its user that is not hidden from them.
#[tokio::test]
async fn agent_without_root_cannot_require_isolation() {
    let fixture = fixture().await;
    let mut child = fixture.process_of_another_user_with(&[("TEST_ISOLATION", "required".to_owned())]);
    let ended = tokio::time::timeout(TIMEOUT, child.wait()).await;
    assert!(!ended.expect("the agent refuses to start").unwrap().success());
    assert!(fixture.server.state().registered.is_empty());
}
