//! Commands in namespaces of their own: their processes, users, files and limits.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;
use tidemill_supervisor::{
    CommandGroup, CommandState, CommandUser, DetachedCommand, DetachedSpec, End, Isolation, Namespaces,
    parent_group,
};

use crate::detached::{exit, log, spec, start};
use crate::fixture::{is_alive, not_tested, signal, until};

/// First user id of the commands, far from those of other tests.
const FIRST_USER: u32 = 2_000_100_000;

/// A task directory in an agent directory that no other user can enter.
struct Task {
    _root: TempDir,
    agent: PathBuf,
    dir: PathBuf,
    /// User id of its command, because the limit of processes counts those of all commands with the id.
    user: u32,
}

impl Task {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let agent = root.path().join("agent");
        let dir = agent.join("tasks/one");
        fs::create_dir_all(dir.join("work")).unwrap();
        fs::write(agent.join("token"), "hunter2").unwrap();
        let user = FIRST_USER + number_of(&agent) % 100_000;
        if geteuid().is_root() {
            chown(dir.join("work"), Some(user), Some(user)).unwrap();
        }
        Self { agent, dir, user, _root: root }
    }

    fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    fn spec(&self, script: &str) -> DetachedSpec {
        let mut spec = spec(&self.work(), script);
        let is_root = geteuid().is_root();
        spec.isolation.namespaces = Some(Namespaces {
            user: if is_root { CommandUser::Own(self.user) } else { CommandUser::SameInNamespace },
            // Other users cannot enter the temporary directory of the test.
            covered: if is_root { self.agent.parent().unwrap().to_owned() } else { self.agent.clone() },
            own: vec![self.work()],
            private_tmp: None,
            hidden: Vec::new(),
        });
        spec
    }

    /// Runs a command to its end; returns it with the log.
    async fn run(&self, spec: &DetachedSpec) -> (End, String) {
        let mut supervisor = start(&self.dir, spec, &[]).await;
        supervisor.wait().await.unwrap();
        (exit(&self.dir).await.end, log(&self.dir))
    }
}

/// Whether this user may create namespaces. Root always may: a failure is then a failure of the tests.
fn can_isolate() -> bool {
    let tried = || std::process::Command::new("unshare").args(["-U", "-r", "true"]).status();
    geteuid().is_root() || tried().is_ok_and(|status| status.success())
}

async fn run(script: &str) -> (End, String) {
    let task = Task::new();
    task.run(&task.spec(script)).await
}

/// Whether a program of this machine, such as `sleep`, is in the PID namespace of the task.
pub(crate) fn processes_of(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(mark) && is_alive(*pid)
    })
    .collect()
}

#[tokio::test]
async fn exit_codes_and_signals_are_reported_from_a_namespace() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    for code in [0, 1, 126, 127, 255] {
        assert_eq!(run(&format!("exit {code}")).await.0, End::Code(code));
    }
    for (name, number) in [("TERM", 15), ("KILL", 9), ("PIPE", 13), ("SEGV", 11)] {
        assert_eq!(run(&format!("ulimit -c 0; kill -{name} $$")).await.0, End::Signal(number));
    }
}

#[tokio::test]
async fn command_in_a_namespace_that_cannot_start_has_a_reason() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let task = Task::new();
    let mut missing = task.spec("");
    missing.command = vec!["no-such-command".to_owned()];
    let reason = "`no-such-command` was not found".to_owned();
    assert_eq!(task.run(&missing).await.0, End::NotStarted { reason });
    let task = Task::new();
    let mut broken = task.spec("true");
    broken.isolation.namespaces.as_mut().unwrap().own.push(task.agent.join("missing"));
    let (End::NotStarted { reason }, _) = task.run(&broken).await else { panic!("it was started") };
    assert!(reason.starts_with("the launch step could not open "), "{reason}");
}

#[tokio::test]
async fn command_has_its_own_user_processes_and_no_rights() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let script = "read -r name < /proc/1/comm; echo \"$$ $PPID $name\"; id -u; id -G; \
                  grep -E '^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs|Groups):' /proc/self/status; \
                  ls /proc | grep -c '^[0-9]'";
    let task = Task::new();
    let (end, log) = task.run(&task.spec(script)).await;
    assert_eq!(end, End::Code(0), "{log}");
    let lines: Vec<&str> = log.lines().map(|line| &line[2..]).collect();
    assert!(lines[0].starts_with("2 1 "), "{log}");
    if geteuid().is_root() {
        let user = task.user.to_string();
        assert_eq!((lines[1], lines[2]), (user.as_str(), user.as_str()), "{log}");
    }
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert!(lines.contains(&format!("{set}:\t0000000000000000").as_str()), "{log}");
    }
    assert!(lines.contains(&"NoNewPrivs:\t1"), "{log}");
    // Init, the shell, and the programs that it starts.
    assert!(lines.last().unwrap().parse::<u32>().unwrap() <= 5, "{log}");
}

#[tokio::test]
async fn command_sees_only_its_own_directory_of_the_agent() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let task = Task::new();
    fs::create_dir_all(task.agent.join("tasks/other/work")).unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let (file, folder) = (secrets.path().join("secrets"), secrets.path().join("store"));
    fs::write(&file, "hunter2").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("output"), "hunter2").unwrap();
    for path in [secrets.path(), &folder] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = format!(
        "find {} -mindepth 1; cat {} {}/*; echo kept > out; mkdir {}/tasks/two; echo $?",
        task.agent.display(),
        file.display(),
        folder.display(),
        task.agent.display()
    );
    // The control: without isolation the command reads everything.
    let plain = Task::new();
    let (_, seen) = plain.run(&spec(&plain.work(), &script)).await;
    assert_eq!(seen.matches("hunter2").count(), 2, "{seen}");
    fs::remove_dir(task.agent.join("tasks/two")).unwrap();
    let mut spec = task.spec(&script);
    spec.isolation.namespaces.as_mut().unwrap().hidden = vec![file, folder, PathBuf::from("/no/such/file")];
    let (_, seen) = task.run(&spec).await;
    let found: Vec<&str> =
        seen.lines().filter_map(|line| line[2..].strip_prefix(task.agent.to_str().unwrap())).collect();
    assert_eq!(found, ["/tasks", "/tasks/one", "/tasks/one/work"], "{seen}");
    assert!(!seen.contains("hunter2") && !task.agent.join("tasks/two").exists(), "{seen}");
    assert_eq!(fs::read_to_string(task.work().join("out")).unwrap(), "kept\n");
}

/// A process in another session, without environment, whose parents are dead.
#[tokio::test]
async fn no_process_outlives_a_command_in_a_namespace() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let mark = format!("1{:09}", number_of(&Task::new().agent));
    let daemon =
        format!("(setsid env -i sh -c 'exec sleep {mark}' >/dev/null 2>&1 &) ; kill -9 $PPID; exit 3");
    let (end, log) = run(&daemon).await;
    // Init ignores the signal of its own command.
    assert_eq!(end, End::Code(3), "{log}");
    assert_eq!(processes_of(&mark), Vec::<i32>::new());
}

/// A number that differs between tests and runs.
fn number_of(path: &Path) -> u32 {
    path.display()
        .to_string()
        .bytes()
        .fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
        % 1_000_000_000
}

#[tokio::test]
async fn killed_supervisor_takes_the_namespace_with_it() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let task = Task::new();
    let mark = format!("2{:09}", number_of(&task.agent));
    let script = format!("(setsid env -i sleep {mark} &); exec sleep {mark}");
    let mut supervisor = start(&task.dir, &task.spec(&script), &[]).await;
    until("both processes run", || processes_of(&mark).len() == 2).await;
    signal(supervisor.id().unwrap().try_into().unwrap(), Signal::KILL);
    supervisor.wait().await.unwrap();
    until("all processes are dead", || processes_of(&mark).is_empty()).await;
    assert_eq!(DetachedCommand::new(&task.dir).state().unwrap(), CommandState::Lost);
}

#[tokio::test]
async fn stop_reaches_the_command_in_its_namespace() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let task = Task::new();
    let script = "trap 'echo stopping; exit 9' TERM; echo ready > ready; while true; do sleep 0.05; done";
    let mut supervisor = start(&task.dir, &task.spec(script), &[]).await;
    until("the command is ready", || task.work().join("ready").exists()).await;
    assert!(DetachedCommand::new(&task.dir).stop(crate::fixture::LONG).unwrap());
    supervisor.wait().await.unwrap();
    assert_eq!(exit(&task.dir).await.end, End::Code(9), "{}", log(&task.dir));
    assert!(log(&task.dir).contains("o stopping\n"), "{}", log(&task.dir));
}

#[tokio::test]
async fn process_limit_applies_to_the_namespace_only() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let fork = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5 & done 2>/dev/null; wait; echo forked";
    let task = Task::new();
    let mut limited = task.spec(fork);
    limited.limits.processes = Some(4);
    let (end, log) = task.run(&limited).await;
    assert_ne!(end, End::Code(0), "{log}");
    assert!(!log.contains("forked"), "{log}");
    assert_eq!(run(fork).await.0, End::Code(0));
}

#[tokio::test]
async fn control_group_holds_the_command_and_is_removed() {
    let parent = match parent_group() {
        Ok(parent) if geteuid().is_root() => parent,
        Ok(_) | Err(_) => return not_tested("this user cannot create control groups here"),
    };
    let task = Task::new();
    let group = CommandGroup::new(parent.join(format!("tidemill-test-{}", number_of(&task.agent))));
    let mut spec =
        spec(&task.work(), "grep -c \"$GROUP\" /proc/self/cgroup; setsid env -i sleep 1000 & kill -9 $PPID");
    spec.env.push(("GROUP".to_owned(), group.dir().file_name().unwrap().to_str().unwrap().to_owned()));
    spec.isolation = Isolation { namespaces: None, cgroup: Some(group.dir().to_owned()) };
    let mut supervisor = start(&task.dir, &spec, &[]).await;
    supervisor.wait().await.unwrap();
    let command = DetachedCommand::new(&task.dir);
    assert_eq!(command.state().unwrap(), CommandState::Lost);
    assert!(group.is_populated().unwrap(), "the control: without the group, the process is not found");
    until("the orphans are dead", || command.kill_orphans(&[]).unwrap() == 0).await;
    assert!(!group.dir().exists());

    let task = Task::new();
    spec.command[2] = "sleep 1000 & exit 0".to_owned();
    spec.dir = task.work();
    assert_eq!(task.run(&spec).await.0, End::Code(0));
    assert!(!group.dir().exists());
}

/// Its processes are bounded while it runs, and none is left after its end.
#[tokio::test]
async fn fork_bomb_is_bounded_and_ends_with_its_command() {
    if !can_isolate() {
        return not_tested("this user cannot create namespaces here");
    }
    let task = Task::new();
    let mark = format!("3{:09}", number_of(&task.agent));
    // A shell that cannot fork ends. The command itself must not, so it forks once, before the limit is reached.
    let mut bomb = task.spec(&format!("b() {{ sleep {mark} & b & b & }}; b 2>/dev/null & exec sleep {mark}"));
    bomb.limits.processes = Some(40);
    let mut supervisor = start(&task.dir, &bomb, &[]).await;
    let mut most = 0;
    until("the bomb reaches its limit", || {
        most = most.max(processes_of(&mark).len());
        // The shells come and go, but each has left a process that sleeps.
        most >= 10
    })
    .await;
    DetachedCommand::new(&task.dir).kill().unwrap();
    supervisor.wait().await.unwrap();
    // The shells of the command have the mark in their command lines, too.
    assert!(most <= 50, "{most}");
    assert_eq!(processes_of(&mark), Vec::<i32>::new());
}
