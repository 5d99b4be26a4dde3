//! Jobs that take more than their share: processes, shared memory, temporary files and the disk.

use super::{
    Mode, NAMESPACES, agent, best_isolation, fixture, mark, not_tested, processes_of, registered, run,
};
use crate::fixture::{Fixture, cancel, kill, order, success, until};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use tidemill_core::limits::TASK_SHARED_MEMORY_BYTES_MAX;
use tidemill_core::task::TaskResult;
use tokio::process::Child;

/// A named pipe on which the shells of a task wait with `read line < %gate`, without a process of their own.
pub(super) struct Gate(File);

impl Gate {
    pub(super) fn new(fixture: &Fixture) -> Self {
        let path = fixture.path("gate");
        assert!(Command::new("mkfifo").args(["-m", "644"]).arg(&path).status().unwrap().success());
        // Open for both, so that a shell that comes late does not wait for another writer.
        Self(File::options().read(true).write(true).open(path).unwrap())
    }

    /// Ends the wait of all shells, with one line for each.
    pub(super) fn open(&mut self) {
        self.0.write_all(&[b'\n'; 4096]).unwrap();
    }
}

/// Starts an isolated agent that is not root, and thus uses a user namespace.
async fn agent_of_another_user(fixture: &Fixture) -> Option<Child> {
    let child = fixture.process_of_another_user_with(&[(NAMESPACES.0, NAMESPACES.1.to_owned())]);
    registered(fixture, child).await.map(|(child, _)| child)
}

fn with_limits(mut order: Value, limits: Value) -> Value {
    order["work"]["limits"] = limits;
    order
}

/// Without a memory controller only the size of the file system bounds these files: no process has their memory.
#[tokio::test]
async fn task_cannot_fill_shared_memory() {
    let mark = mark();
    let fill = format!(
        "dd if=/dev/zero of=/dev/shm/{mark} bs=1M count=48 2> /dev/null && echo filled; rm -f /dev/shm/{mark}; \
         cd /dev/shm && seq 3000 | sed s/^/{mark}-/ | xargs touch 2> /dev/null && echo created; \
         seq 3000 | sed s/^/{mark}-/ | xargs rm -f; true"
    );
    let size = "df -B1 --output=size /dev/shm | tail -n 1 | tr -d ' '";
    for (mode, is_other_user) in [(Mode::Isolated, false), (Mode::Isolated, true), (Mode::Off, false)] {
        let fixture = fixture().await;
        let agent =
            if is_other_user { agent_of_another_user(&fixture).await } else { agent(&fixture, mode).await };
        let Some(agent) = agent else { return };
        let limited = with_limits(order(&fixture, "attack", &fill), json!({"memory_bytes": 32 << 20}));
        let (_, output) = run(&fixture, limited).await;
        for evidence in ["filled", "created"] {
            assert_eq!(output.contains(evidence), mode == Mode::Off, "{mode:?} {evidence}: {output}");
        }
        if mode == Mode::Isolated {
            let small = with_limits(order(&fixture, "small", size), json!({"memory_bytes": 32 << 20}));
            assert_eq!(run(&fixture, small).await.1, format!("stdout: {}", 32 << 20));
            let default = run(&fixture, order(&fixture, "default", size)).await.1;
            assert_eq!(default, format!("stdout: {TASK_SHARED_MEMORY_BYTES_MAX}"));
        }
        kill(agent).await;
    }
}

/// Each process of the bomb starts two more, 255 in all. The control shows that all of them start without a low limit.
#[tokio::test]
async fn fork_bomb_is_bounded() {
    /// The limit of the job plus the processes of its supervision.
    const BOUND: usize = 40 + 3;
    let fixture = fixture().await;
    let Some(agent) = agent(&fixture, Mode::Isolated).await else { return };
    let mut gate = Gate::new(&fixture);
    let mark = mark();
    let script = format!(
        "bomb() {{ if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & fi; read line < %gate; }}; \
         bomb 7 & read line < %gate; : {mark}"
    );
    fixture.server.order(with_limits(order(&fixture, "bomb", &script), json!({"processes": 40})));
    let mut most = 0;
    until("the bomb cannot fork", || {
        most = most.max(processes_of(&mark).len());
        assert!(most <= BOUND, "{most}");
        fixture.server.log("bomb-001").concat().contains("ork")
    })
    .await;
    // Each task has a limit of its own, so other tasks can still fork.
    let beside = "for i in 1 2 3 4 5 6 7 8; do sleep 0.01 & done; wait; echo ended";
    let (result, output) = run(&fixture, order(&fixture, "beside", beside)).await;
    assert_eq!((result, output.as_str()), (success(), "stdout: ended"));
    most = most.max(processes_of(&mark).len());
    assert!((10..=BOUND).contains(&most), "{most}");
    gate.open();
    assert_eq!(fixture.result("bomb-001").await, success());
    assert_eq!(processes_of(&mark), Vec::<i32>::new());

    let mut gate = {
        fs::remove_file(fixture.path("gate")).unwrap();
        Gate::new(&fixture)
    };
    fixture.server.order(order(&fixture, "control", &script));
    until("the whole bomb runs", || processes_of(&mark).len() == 256).await;
    gate.open();
    assert_eq!(fixture.result("control-001").await, success());
    assert_eq!(processes_of(&mark), Vec::<i32>::new());
    kill(agent).await;
}

/// A limit of the size applies to each file. All files together are bounded by the disk: the task that fills it fails,
/// and its files are removed.
#[tokio::test]
async fn disk_filling_job_ends_and_others_continue() {
    let fixture = fixture().await;
    let child = fixture.process_on_small_disk_with(&[("TEST_ISOLATION", "required".to_owned())]);
    let Some((agent, _)) = registered(&fixture, child).await else { return };
    let mut gate = Gate::new(&fixture);
    fixture.server.order(order(&fixture, "beside", "read line < %gate; echo ended"));
    let one = with_limits(
        order(&fixture, "one", "exec dd if=/dev/zero of=big bs=1M count=20"),
        json!({"output_bytes": 1_000_000}),
    );
    let (result, _) = run(&fixture, one).await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 153, .. }), "{result:?}");
    let many = "for i in 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero of=big$i bs=900K count=1 || exit 1; done";
    let many = with_limits(order(&fixture, "many", many), json!({"output_bytes": 1_000_000}));
    let (result, _) = run(&fixture, many).await;
    let full = "the disk of the agent is full";
    assert!(
        matches!(&result, TaskResult::Failed { fatal: false, message, .. } if message.contains(full)),
        "{result:?}"
    );
    gate.open();
    assert_eq!(fixture.result("beside-001").await, success());
    assert_eq!(run(&fixture, order(&fixture, "next", "echo x > small")).await.0, success());
    kill(agent).await;
}

/// Two tasks of one agent at the same time: the files of one are not seen by the other, nor by the machine.
#[tokio::test]
async fn temporary_files_are_private_to_a_task() {
    if !geteuid().is_root() {
        return not_tested("tasks of an agent that is not root share the temporary files of its user");
    }
    for mode in [Mode::Isolated, Mode::Off] {
        let fixture = fixture().await;
        let environment = (mode == Mode::Isolated).then(best_isolation);
        let child = fixture.process_outside_of_temporary_directories(environment.as_slice());
        let Some((agent, _)) = registered(&fixture, child).await else { return };
        let mark = mark();
        let files = ["/tmp", "/var/tmp", "/dev/shm"].map(|dir| format!("{dir}/{mark}"));
        let [tmp, var_tmp, shm] = &files;
        let write = format!(
            "for file in {tmp} {var_tmp} {shm}; do echo hunter2 > $file; chmod 644 $file; done; \
             cat {tmp} {var_tmp} {shm}; exec sleep 1000"
        );
        fixture.server.order(order(&fixture, "writer", &write));
        let written = || fixture.server.log("writer-001").concat().matches("hunter2").count() == 3;
        until("the files are written", written).await;
        let read = format!("cat {tmp} {var_tmp} {shm} 2> /dev/null; true");
        let (result, output) = run(&fixture, order(&fixture, "reader", &read)).await;
        assert_eq!(result, success());
        let seen = if mode == Mode::Isolated { 0 } else { 3 };
        assert_eq!(output.matches("hunter2").count(), seen, "{mode:?}: {output}");
        assert_eq!(files.iter().filter(|file| Path::new(file).exists()).count(), seen);
        fixture.server.order(cancel("writer"));
        assert_eq!(fixture.result("writer-001").await, TaskResult::Stopped);
        // A later task does not find them either; without isolation they stay on the machine.
        let (_, output) = run(&fixture, order(&fixture, "later", &read)).await;
        assert_eq!(output.matches("hunter2").count(), seen, "{mode:?}: {output}");
        for file in &files {
            let _ = fs::remove_file(file);
        }
        kill(agent).await;
    }
}
