//! How a command ends, and how a command that never ran is told apart from one that failed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidemill_supervisor::{End, Error, Supervised};

use crate::stage::{command, is_alive, run, shell, stand, start};

fn reason(end: &End) -> &str {
    match end {
        End::NotStarted { reason } => reason,
        End::Code(_) | End::Signal(_) | End::LostContact => panic!("the command started: {end}"),
    }
}

#[tokio::test]
async fn exit_codes_are_told() {
    for code in [0, 1, 3, 126, 127, 255] {
        let outcome = run(&shell(&format!("exit {code}"))).await;
        assert_eq!(outcome.end, End::Code(code));
        assert_eq!(outcome.end.is_success(), code == 0);
        assert!(outcome.pid.is_some());
    }
}

#[tokio::test]
async fn signals_are_told() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let outcome = run(&shell(&format!("ulimit -c 0; kill -{name} $$"))).await;
        assert_eq!(outcome.end, End::Signal(number));
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_not_started() {
    let outcome = run(&command(&["no-such-command-anywhere", "x"])).await;
    assert_eq!(reason(&outcome.end), "`no-such-command-anywhere` was not found");
    assert_eq!(outcome.pid, None);
    let outcome = run(&command(&["/no/such/command"])).await;
    assert_eq!(reason(&outcome.end), "`/no/such/command` was not found");
}

#[tokio::test]
async fn a_file_that_cannot_be_executed_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    fs::write(&path, "hello").unwrap();
    let outcome = run(&command(&[path.to_str().unwrap()])).await;
    assert_eq!(reason(&outcome.end), format!("`{}` is not executable, or not permitted", path.display()));
}

#[tokio::test]
async fn a_script_without_its_interpreter_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = run(&command(&[path.to_str().unwrap()])).await;
    assert_eq!(reason(&outcome.end), format!("the interpreter of `{}` was not found", path.display()));
}

#[tokio::test]
async fn what_makes_no_sense_is_not_started() {
    assert_eq!(reason(&run(&command(&[])).await.end), "no command was given");

    let mut spec = command(&["true"]);
    spec.dir = Some("/no/such/directory".into());
    let outcome = run(&spec).await;
    assert!(reason(&outcome.end).starts_with("the directory `/no/such/directory` cannot be entered: "));

    let mut spec = command(&["true"]);
    spec.env = vec![("A=B".to_owned(), "c".to_owned())];
    assert_eq!(reason(&run(&spec).await.end), "`A=B` cannot be the name of a variable");

    let outcome = run(&command(&["true", "a\0b"])).await;
    assert!(reason(&outcome.end).starts_with("`true` could not be executed: "));
}

#[tokio::test]
async fn a_supervisor_that_does_not_exist_is_an_error() {
    let error = Supervised::spawn("/no/such/program".as_ref(), &[], &command(&["true"])).await.unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error:?}");
    assert_eq!(error.to_string(), "could not start the supervisor `/no/such/program`");
}

/// A program that is no supervisor ends without a word, which is an error and not an end.
#[tokio::test]
async fn a_program_that_is_no_supervisor_is_an_error() {
    let error = match Supervised::spawn(&stand(), &["nonsense"], &command(&["true"])).await {
        Ok(mut supervised) => supervised.next().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Lost { .. } | Error::Handover(_)), "{error:?}");
}

#[tokio::test]
async fn a_handle_is_done_after_the_end_and_orders_do_no_harm() {
    let mut supervised = start(&command(&["true"])).await;
    let outcome = crate::stage::rest(&mut supervised).await;
    assert_eq!(outcome.end, End::Code(0));
    let control = supervised.control();
    drop(supervised);
    control.kill().await;
    control.contact(tidemill_supervisor::Moment::now());
    assert!(!is_alive(outcome.pid.unwrap()));
}
