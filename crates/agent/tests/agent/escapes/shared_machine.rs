//! Jobs that attack what the agents of a machine share: the registry of user ids, the process table, and the
//! credentials of clouds.

use super::{Mode, agent, agent_with, fixture, mark, not_tested, outputs, processes_of, run};
use crate::fixture::{cancel, kill, order, success, until};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tidemill_core::task::TaskResult;

/// A task that holds the lock would stop the start of all other tasks of the machine.
#[tokio::test]
async fn task_cannot_read_or_lock_the_registry_of_user_ids() {
    if !geteuid().is_root() {
        return not_tested("an agent that is not root has no registry of user ids");
    }
    let script = "dir=/run/tidemill/task-users; ls $dir > /dev/null 2>&1 && echo lists; \
                  (exec 9< $dir/lock && flock -w 60 9 && echo locks) 2> /dev/null; \
                  cat $dir/[0-9]* > /dev/null 2>&1 && echo reads; true";
    let Some([isolated, control]) = outputs(script).await else { return };
    assert_eq!(isolated, "");
    assert_eq!(control, "stdout: lists\nstdout: locks\nstdout: reads");
}

/// The names of two other tasks: one that runs, and one that does not exist. The control shows that the agent adopts
/// the processes of tasks without isolation.
#[tokio::test]
async fn task_cannot_pass_for_the_supervisor_of_another_task() {
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let Some(first) = agent(&fixture, mode).await else { return };
        let (attack, victim) = (mark(), mark());
        fixture.server.order(order(&fixture, "victim", &format!("exec sleep {victim}")));
        let script = format!(
            "tasks=%agent/tasks; \
             TIDEMILL_SUPERVISED_DIR=$tasks/victim-001 TIDEMILL_TASK_DIR=$tasks/ghost-001 sleep {attack} & \
             TIDEMILL_SUPERVISED_DIR=$tasks/ghost-001 TIDEMILL_TASK_DIR=$tasks/victim-001 exec sleep {attack}"
        );
        fixture.server.order(order(&fixture, "attack", &script));
        let poses = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains("/ghost-001")
        };
        let both_pose = || processes_of(&attack).iter().filter(|pid| poses(pid)).count() == 2;
        until("both processes pose as others", || both_pose() && !processes_of(&victim).is_empty()).await;
        kill(first).await;
        fixture.server.state().registered.clear();
        fixture.server.state().heartbeats.clear();
        let second = agent(&fixture, mode).await.unwrap();
        until("the agent names its tasks", || !fixture.server.state().heartbeats.is_empty()).await;
        let held: Vec<_> =
            fixture.server.state().heartbeats[0].holding.iter().map(|task| task.task_id.clone()).collect();
        assert_eq!(held.contains(&"ghost-001".to_owned()), mode == Mode::Off, "{mode:?}: {held:?}");
        if mode == Mode::Isolated {
            // Both tasks can still be stopped, each by its own supervisor.
            fixture.server.order(cancel("attack"));
            assert_eq!(fixture.result("attack-001").await, TaskResult::Stopped);
            assert!(!processes_of(&victim).is_empty() && fixture.server.result("victim-001").is_none());
            assert!(fixture.server.result("ghost-001").is_none());
        }
        fixture.server.order(cancel("victim"));
        assert_eq!(fixture.result("victim-001").await, TaskResult::Stopped);
        assert_eq!(processes_of(&victim), Vec::<i32>::new());
        for pid in processes_of(&attack) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        kill(second).await;
    }
}

/// The agent uses them for its store. Their files may be readable for all users, as in some containers.
#[tokio::test]
async fn task_cannot_read_the_cloud_credentials_of_its_agent() {
    let variables = [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "AZURE_FEDERATED_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
    ];
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let environment = variables.map(|name| {
            let path = fixture.path(name);
            fs::write(&path, format!("hunter2 of {name}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            (name, path.display().to_string())
        });
        let Some(agent) = agent_with(&fixture, mode, &environment).await else { return };
        let script = format!("cd %; cat {}", variables.join(" "));
        let (result, output) = run(&fixture, order(&fixture, "attack", &script)).await;
        assert_eq!(result, success());
        let expected = if mode == Mode::Isolated { 0 } else { variables.len() };
        assert_eq!(output.matches("hunter2").count(), expected, "{mode:?}: {output}");
        kill(agent).await;
    }
}
