//! Exit codes, signals, and commands that could not be started.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidemill_supervisor::{End, Error, SupervisedCommand};

use crate::fixture::{command, is_alive, run, shell, start, test_program};

fn reason(end: &End) -> &str {
    match end {
        End::NotStarted { reason } => reason,
        End::Code(_) | End::Signal(_) | End::LostContact => panic!("the command was started: {end}"),
    }
}

#[tokio::test]
async fn exit_codes_are_reported() {
    for code in [0, 1, 3, 126, 127, 255] {
        let outcome = run(&shell(&format!("exit {code}"))).await;
        assert_eq!(outcome.end, End::Code(code));
        assert_eq!(outcome.end.is_success(), code == 0);
        assert!(outcome.pid.is_some());
    }
}

#[tokio::test]
async fn signals_are_reported() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let outcome = run(&shell(&format!("ulimit -c 0; kill -{name} $$"))).await;
        assert_eq!(outcome.end, End::Signal(number));
    }
}

#[tokio::test]
async fn missing_command_is_not_started() {
    let outcome = run(&command(&["no-such-command-anywhere", "x"])).await;
    assert_eq!(reason(&outcome.end), "`no-such-command-anywhere` was not found");
    assert_eq!(outcome.pid, None);
    let outcome = run(&command(&["/no/such/command"])).await;
    assert_eq!(reason(&outcome.end), "`/no/such/command` was not found");
}

#[tokio::test]
async fn file_without_execute_permission_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    fs::write(&path, "hello").unwrap();
    let outcome = run(&command(&[path.to_str().unwrap()])).await;
    assert_eq!(
        reason(&outcome.end),
        format!("`{}` is not executable, or permission is denied", path.display())
    );
}

#[tokio::test]
async fn script_without_its_interpreter_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = run(&command(&[path.to_str().unwrap()])).await;
    assert_eq!(reason(&outcome.end), format!("the interpreter of `{}` was not found", path.display()));
}

#[tokio::test]
async fn invalid_specification_is_not_started() {
    assert_eq!(reason(&run(&command(&[])).await.end), "no command is given");

    let mut spec = command(&["true"]);
    spec.dir = Some("/no/such/directory".into());
    let outcome = run(&spec).await;
    assert!(reason(&outcome.end).starts_with("could not enter the directory `/no/such/directory`: "));

    let mut spec = command(&["true"]);
    spec.env = vec![("A=B".to_owned(), "c".to_owned())];
    assert_eq!(reason(&run(&spec).await.end), "`A=B` is not a valid name of an environment variable");

    let outcome = run(&command(&["true", "a\0b"])).await;
    assert!(reason(&outcome.end).starts_with("could not execute `true`: "));
}

#[tokio::test]
async fn missing_supervisor_program_is_an_error() {
    let error =
        SupervisedCommand::spawn("/no/such/program".as_ref(), &[], &command(&["true"])).await.unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error:?}");
    assert_eq!(error.to_string(), "could not start the supervisor `/no/such/program`");
}

#[tokio::test]
async fn program_that_is_not_a_supervisor_is_an_error() {
    let error = match SupervisedCommand::spawn(&test_program(), &["nonsense"], &command(&["true"])).await {
        Ok(mut supervised) => supervised.next().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Lost { .. } | Error::Send(_)), "{error:?}");
}

#[tokio::test]
async fn control_messages_after_the_end_have_no_effect() {
    let mut supervised = start(&command(&["true"])).await;
    let outcome = crate::fixture::rest(&mut supervised).await;
    assert_eq!(outcome.end, End::Code(0));
    let control = supervised.control();
    drop(supervised);
    control.kill().await;
    control.contact(tidemill_supervisor::BootInstant::now());
    assert!(!is_alive(outcome.pid.unwrap()));
}
