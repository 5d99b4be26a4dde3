//! Secrets of an agent: not in the database, on its disk, in a log or on a command line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, graph};
use super::process_deaths::{command_of, parent};
use crate::fixture::{Fixture, on_both};

on_both!(secret_reaches_only_the_command, secret_in_a_file_name_is_masked);

const SECRET: &str = "hush-7f3a9c5e1b";

fn secret_reaches_only_the_command(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let file = fixture.write("secrets.env", &format!("PRESS_TOKEN={SECRET}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("the mode is set");
    let path = file.display().to_string();
    // Other users could read the file, so it is refused.
    let mut open = graphs.agent("open", &["--secrets", &path]);
    assert_eq!(open.wait_for_exit(super::fixture::TIMEOUT), Some(2), "{}", open.stderr());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let mut agent = graphs.agent("ann", &["--secrets", &path]);
    let (proof, go) = (fixture.path("proof"), fixture.path("go"));
    // The command prints the secret and fails, so that its last lines are stored.
    let work = format!(
        "while ! test -e {}; do sleep 0.05; done; \
         printf %s \"$PRESS_TOKEN\" | sha256sum > {}; echo \"it is $PRESS_TOKEN\"; \
         echo \"and $PRESS_TOKEN\" >&2; cat /proc/self/cmdline > words.txt; exit 3",
        go.display(),
        proof.display()
    );
    let run = graphs.submit(&graph(&[graphs.step(
        "press",
        &[],
        &work,
        "secrets: [PRESS_TOKEN]\noutputs: {words: words.txt}",
    )]));
    graphs.wait_for_line("begin press");
    let command = graphs.ledger().pid("press");
    let supervisor = parent(command);
    for pid in fixture.processes().into_iter().chain([agent.pid(), supervisor, command]) {
        let line = command_of(pid);
        assert!(!line.is_empty() && !line.contains(SECRET), "{pid}: {line}");
    }
    assert!(command_of(supervisor).contains("lasting"), "{}", command_of(supervisor));
    fixture.write("go", "");
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    // The command received the secret.
    let digest = fs::read_to_string(proof).expect("the proof exists");
    let expected = tidemill_core::digest::sha256_hex(SECRET.as_bytes());
    assert!(digest.starts_with(&expected), "{digest}");
    let logs = fixture.ok(&["graph", "logs", run.as_str(), "press"]);
    assert!(logs.contains("it is •••") && logs.contains("and •••"), "{logs}");
    agent.kill();
    // The secret is nowhere else.
    let rows = fixture.dump();
    assert!(rows.iter().any(|row| row.contains("PRESS_TOKEN")), "the name of the secret is stored");
    let leaked: Vec<&String> = rows.iter().filter(|row| row.contains(SECRET)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    let mut found = Vec::new();
    grep(&graphs.dir("ann"), &mut found);
    for log in ["ann.log", "server.log", "controller.log"] {
        grep(&fixture.path(log), &mut found);
    }
    assert!(found.is_empty(), "the secret is in {found:?}");
    assert!(!graphs.job(&run, "press").to_string().contains(SECRET));
    graphs.check(&run);
}

/// Error messages list new files. A secret in such a file name is masked.
fn secret_in_a_file_name_is_masked(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let file = fixture.write("secrets.env", &format!("PRESS_TOKEN={SECRET}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let mut agent = graphs.agent("ann", &["--secrets", &file.display().to_string()]);
    let hint = "secrets: [PRESS_TOKEN]\noutputs: {wanted: lost.txt}";
    let taken = "secrets: [PRESS_TOKEN]\noutputs: {all: '*.csv'}";
    let run = graphs.submit(&graph(&[
        graphs.step("hint", &[], "touch \"$PRESS_TOKEN.txt\"", hint),
        graphs.step("taken", &[], "touch \"$PRESS_TOKEN.csv\"", taken),
    ]));
    assert_eq!(graphs.wait_for_end(&run), RunState::Failed);
    let message = |name: &str| fixture.ok(&["job", "why", &format!("{run}/{name}")]);
    let expected = "no file matches wanted (lost.txt); new files are •••.txt";
    assert!(message("hint").contains(expected), "{}", message("hint"));
    assert!(message("taken").contains("•••.csv"), "{}", message("taken"));
    agent.kill();
    let leaked: Vec<String> = fixture.dump().into_iter().filter(|row| row.contains(SECRET)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    let mut found = Vec::new();
    for log in ["ann.log", "server.log", "controller.log"] {
        grep(&fixture.path(log), &mut found);
    }
    assert!(found.is_empty(), "the secret is in {found:?}");
    graphs.check(&run);
}

/// Collects the files below a path that contain the secret.
fn grep(path: &Path, found: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory is read").flatten() {
            grep(&entry.path(), found);
        }
    } else if let Ok(bytes) = fs::read(path)
        && bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    {
        found.push(path.display().to_string());
    }
}
