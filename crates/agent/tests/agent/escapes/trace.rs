//! Jobs that trace other processes: `ptrace` and `process_vm_readv` on the agent, the supervisor and another task.

use super::{Mode, NAMESPACES, agent, fixture, mark, not_tested, processes_of, registered, run};
use crate::fixture::{Fixture, kill, order, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tokio::process::Child;

const PROGRAM: &str = include_str!("trace.py");

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The processes above a command, up to its supervisor: its launch steps come first.
fn supervisors(command: i32, agent: i32) -> Vec<i32> {
    let outside = [0, 1, agent, i32::try_from(std::process::id()).unwrap()];
    let is_supervisor = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        !outside.contains(pid) && !words.is_empty()
    };
    std::iter::successors(parent(command), |pid| parent(*pid)).take_while(is_supervisor).collect()
}

fn write_program(fixture: &Fixture) {
    let path = fixture.path("trace.py");
    fs::write(&path, PROGRAM).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// Starts a task as a victim, traces it, its supervisor and the agent from another task, and returns the output.
async fn trace(fixture: &Fixture, agent: &Child, more: &str) -> String {
    write_program(fixture);
    let victim = mark();
    // The shell stays, so that the marked process is not the only one of the task.
    fixture.server.order(order(fixture, "victim", &format!("sleep {victim}; true")));
    let command = || processes_of(&victim).into_iter().max();
    until("the other task runs", || command().is_some()).await;
    let (agent, other) = (i32::try_from(agent.id().unwrap()).unwrap(), command().unwrap());
    let above = supervisors(other, agent);
    assert!(!above.is_empty(), "the command has a supervisor");
    let mut line = format!("python3 %trace.py agent={agent} task={other}");
    for pid in above {
        line = format!("{line} supervisor={pid}");
    }
    let (_, output) = run(fixture, order(fixture, "attack", &format!("{line}{more}"))).await;
    kill_process(Pid::from_raw(other).unwrap(), Signal::KILL).unwrap();
    fixture.result("victim-001").await;
    output
}

/// Asserts that each attempt was made, and that none succeeded.
fn assert_refused(output: &str) {
    for victim in ["agent", "task", "supervisor"] {
        for call in ["attach", "read"] {
            assert!(output.contains(&format!("stdout: {victim} {call} E")), "{victim} {call}: {output}");
        }
    }
    // A bad address is found only by a process that may read the memory.
    assert!(!output.contains("succeeds") && !output.contains("EFAULT"), "{output}");
}

/// Whether a process of this user may trace another one that is not its child.
async fn kernel_permits_tracing(fixture: &Fixture) -> bool {
    let mut victim = tokio::process::Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
    let argument = format!("other={}", victim.id().unwrap());
    let traced = tokio::process::Command::new("python3").arg(fixture.path("trace.py")).arg(argument).output();
    let output = String::from_utf8(traced.await.unwrap().stdout).unwrap();
    victim.kill().await.unwrap();
    output == "other attach succeeds\nother read succeeds\n"
}

#[tokio::test]
async fn task_cannot_trace_the_agent_its_supervisor_or_another_task() {
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let Some(agent) = agent(&fixture, mode).await else { return };
        // Process 1 of the namespace is the init step, which belongs to the agent's user.
        let init = if mode == Mode::Isolated { " init=1" } else { "" };
        let output = trace(&fixture, &agent, init).await;
        if mode == Mode::Isolated {
            assert_refused(&output);
            assert!(output.contains("init attach EPERM"), "{output}");
        } else if kernel_permits_tracing(&fixture).await {
            assert!(!output.contains(" E") && output.matches("succeeds").count() >= 6, "{output}");
        } else {
            not_tested("this kernel permits no tracing of the same user, so the control has no result");
        }
        kill(agent).await;
    }
}

/// In a user namespace, tasks have the user of the agent: only the other namespaces and capabilities separate them.
#[tokio::test]
async fn task_in_a_user_namespace_cannot_trace() {
    let fixture = fixture().await;
    let child = fixture.process_of_another_user_with(&[(NAMESPACES.0, NAMESPACES.1.to_owned())]);
    let Some((agent, _)) = registered(&fixture, child).await else { return };
    let output = trace(&fixture, &agent, " init=1").await;
    assert_refused(&output);
    assert!(output.contains("init attach EPERM"), "{output}");
    kill(agent).await;
}
