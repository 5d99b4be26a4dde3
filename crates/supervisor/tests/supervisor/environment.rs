//! The input, environment, directory, signals and process group of a command, and the visibility of its secrets.

use std::fs;

use tidemill_supervisor::{End, Report, Stream};

use crate::fixture::{command, group, next, rest, run, shell, start};

#[tokio::test]
async fn stdin_is_passed_to_the_command() {
    let mut spec = command(&["sha256sum"]);
    spec.stdin = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let outcome = run(&spec).await;
    assert_eq!(outcome.stdout(), ["02e21fa3c89fa7d7b61826918a8bd35d3127827b4ef3f3ee47ade5e64e3c2a80  -"]);

    let outcome = run(&command(&["wc", "-c"])).await;
    assert_eq!(outcome.stdout(), ["0"]);
}

#[tokio::test]
async fn stdin_can_be_opened_as_dev_stdin() {
    let mut spec = command(&["cat", "/dev/stdin"]);
    spec.stdin = b"hello\n".to_vec();
    assert_eq!(run(&spec).await.stdout(), ["hello"]);
}

#[tokio::test]
async fn unread_stdin_has_no_effect() {
    for script in ["exit 0", "exec <&-; exec true", "read line; echo \"$line\"; exit 0"] {
        let mut spec = shell(script);
        spec.stdin = "line\n".repeat(1_000_000).into_bytes();
        assert_eq!(run(&spec).await.end, End::Code(0), "{script}");
    }
}

#[tokio::test]
async fn environment_is_inherited_with_changes() {
    let (removed, _) = std::env::vars().find(|(name, _)| name != "PATH").unwrap();
    let mut spec = command(&["env"]);
    spec.env = vec![("ADDED".to_owned(), "a=b\nc".to_owned()), ("KEPT".to_owned(), "kept".to_owned())];
    spec.env_remove = vec![removed.clone(), "KEPT".to_owned(), "NEVER_THERE".to_owned()];
    let outcome = run(&spec).await;
    let lines = outcome.stdout();
    assert!(lines.windows(2).any(|pair| pair == ["ADDED=a=b", "c"]));
    assert!(lines.contains(&"KEPT=kept"));
    assert!(lines.iter().any(|line| line.starts_with("PATH=")));
    assert!(!lines.iter().any(|line| line.starts_with(&format!("{removed}="))));
}

#[tokio::test]
async fn program_is_looked_up_in_the_path_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("shout")).unwrap();
    let mut spec = command(&["shout", "hello"]);
    spec.env = vec![("PATH".to_owned(), dir.path().to_str().unwrap().to_owned())];
    assert_eq!(run(&spec).await.stdout(), ["hello"]);
}

#[tokio::test]
async fn directory_is_set_before_the_program_lookup() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/pwd", dir.path().join("where")).unwrap();
    let mut spec = command(&["./where"]);
    spec.dir = Some(dir.path().to_owned());
    let here = fs::canonicalize(dir.path()).unwrap();
    assert_eq!(run(&spec).await.stdout(), [here.to_str().unwrap()]);
}

#[tokio::test]
async fn sigpipe_is_neither_ignored_nor_blocked() {
    let outcome = run(&command(&["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"])).await;
    for line in outcome.stdout() {
        let (_, mask) = line.split_once(":\t").unwrap();
        // Bit 12 is signal 13, SIGPIPE; others may have been ignored before the tests were started.
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & (1 << 12), 0, "{line}");
    }
    assert_eq!(outcome.output.len(), 2);
}

#[tokio::test]
async fn closed_pipe_ends_its_writer() {
    let outcome = run(&shell("{ yes; echo $? >&2; } | true")).await;
    assert_eq!(outcome.texts(Stream::Stderr), ["141"]);
}

#[tokio::test]
async fn command_inherits_no_additional_file_descriptors() {
    let words = ["ls", "/proc/self/fd"];
    let direct = std::process::Command::new(words[0]).arg(words[1]).output().unwrap();
    let outcome = run(&command(&words)).await;
    assert_eq!(outcome.stdout().join("\n"), String::from_utf8(direct.stdout).unwrap().trim_end());
}

/// Ctrl-C in the worker's terminal must reach neither the supervisor nor the command.
#[tokio::test]
async fn worker_supervisor_and_command_have_separate_groups() {
    let mut supervised = start(&command(&["sleep", "1000"])).await;
    let Report::Started { pid } = next(&mut supervised).await else {
        panic!("the first report is not the start")
    };
    let supervisor = i32::try_from(supervised.supervisor_id().unwrap()).unwrap();
    assert_eq!(group(supervisor), supervisor);
    assert_eq!(group(pid), pid);
    supervised.control().kill().await;
    rest(&mut supervised).await;
}

#[tokio::test]
async fn secrets_are_visible_to_the_command_only() {
    let mut spec = shell("echo \"$SECRET\"; cat; exec sleep 1000");
    spec.env = vec![("SECRET".to_owned(), "hunter2".to_owned())];
    spec.stdin = b"hunter3\n".to_vec();
    let mut supervised = start(&spec).await;
    assert_eq!(crate::fixture::next_line(&mut supervised).await, "hunter2");
    assert_eq!(crate::fixture::next_line(&mut supervised).await, "hunter3");
    let supervisor = supervised.supervisor_id().unwrap();
    for file in ["cmdline", "environ"] {
        let seen = fs::read(format!("/proc/{supervisor}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&seen).contains("hunter"), "{file}");
        assert!(!seen.is_empty());
    }
    supervised.control().kill().await;
    rest(&mut supervised).await;
}
