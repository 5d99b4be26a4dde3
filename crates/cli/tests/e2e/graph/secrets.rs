//! Secrets are at the agent, and nowhere else: not in the database, not on its disk, not in a log, not on a command
//! line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tidemill_core::run::RunState;

use super::deaths::{command_of, parent};
use super::ground::{Site, graph};
use crate::stage::{Stage, on_both};

on_both!(a_secret_reaches_the_command_and_nothing_else, secret_in_a_file_name_is_masked);

const SECRET: &str = "hush-7f3a9c5e1b";

fn a_secret_reaches_the_command_and_nothing_else(stage: &Stage) {
    let site = Site::start(stage);
    let file = stage.write("secrets.env", &format!("PRESS_TOKEN={SECRET}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("the mode is set");
    let path = file.display().to_string();
    // Others could read it: it is refused with a sentence.
    let mut open = site.agent("open", &["--secrets", &path]);
    assert_eq!(open.ended_within(super::ground::PATIENCE), Some(2), "{}", open.said());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let mut agent = site.agent("ann", &["--secrets", &path]);
    let (proof, go) = (stage.path("proof"), stage.path("go"));
    // It prints the secret, leaves it in a file that is no output, and ends badly, so that its last lines are shown.
    let work = format!(
        "while ! test -e {}; do sleep 0.05; done; \
         printf %s \"$PRESS_TOKEN\" | sha256sum > {}; echo \"it is $PRESS_TOKEN\"; \
         echo \"and $PRESS_TOKEN\" >&2; cat /proc/self/cmdline > words.txt; exit 3",
        go.display(),
        proof.display()
    );
    let run = site.submit(&graph(&[site.step(
        "press",
        &[],
        &work,
        "secrets: [PRESS_TOKEN]\noutputs: {words: words.txt}",
    )]));
    site.until_written("begin press");
    let command = site.ledger().pid("press");
    let supervisor = parent(command);
    for pid in stage.processes().into_iter().chain([agent.pid(), supervisor, command]) {
        let line = command_of(pid);
        assert!(!line.is_empty() && !line.contains(SECRET), "{pid}: {line}");
    }
    assert!(command_of(supervisor).contains("lasting"), "{}", command_of(supervisor));
    stage.write("go", "");
    assert_eq!(site.until_ended(&run), RunState::Failed);
    // The command had it.
    let digest = fs::read_to_string(proof).expect("the proof is there");
    let expected = tidemill_core::digest::sha256_hex(SECRET.as_bytes());
    assert!(digest.starts_with(&expected), "{digest}");
    let logs = stage.ok(&["graph", "logs", run.as_str(), "press"]);
    assert!(logs.contains("it is •••") && logs.contains("and •••"), "{logs}");
    agent.kill();
    // Nobody else has it.
    let rows = stage.dump();
    assert!(rows.iter().any(|row| row.contains("PRESS_TOKEN")), "the name of the secret is no secret");
    let leaked: Vec<&String> = rows.iter().filter(|row| row.contains(SECRET)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    let mut found = Vec::new();
    grep(&site.dir("ann"), &mut found);
    for log in ["ann.log", "server.log", "controller.log"] {
        grep(&stage.path(log), &mut found);
    }
    assert!(found.is_empty(), "the secret is in {found:?}");
    assert!(!site.job(&run, "press").to_string().contains(SECRET));
    site.check(&run);
}

/// A file whose name holds the secret, and which no output matches, is told of as what may have been meant.
fn secret_in_a_file_name_is_masked(stage: &Stage) {
    let site = Site::start(stage);
    let file = stage.write("secrets.env", &format!("PRESS_TOKEN={SECRET}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    let mut agent = site.agent("ann", &["--secrets", &file.display().to_string()]);
    let hint = "secrets: [PRESS_TOKEN]\noutputs: {wanted: lost.txt}";
    let taken = "secrets: [PRESS_TOKEN]\noutputs: {all: '*.csv'}";
    let run = site.submit(&graph(&[
        site.step("hint", &[], "touch \"$PRESS_TOKEN.txt\"", hint),
        site.step("taken", &[], "touch \"$PRESS_TOKEN.csv\"", taken),
    ]));
    assert_eq!(site.until_ended(&run), RunState::Failed);
    let told = |name: &str| stage.ok(&["job", "why", &format!("{run}/{name}")]);
    let expected = "no file matches wanted (lost.txt); new files are •••.txt";
    assert!(told("hint").contains(expected), "{}", told("hint"));
    assert!(told("taken").contains("•••.csv"), "{}", told("taken"));
    agent.kill();
    let leaked: Vec<String> = stage.dump().into_iter().filter(|row| row.contains(SECRET)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    let mut found = Vec::new();
    for log in ["ann.log", "server.log", "controller.log"] {
        grep(&stage.path(log), &mut found);
    }
    assert!(found.is_empty(), "the secret is in {found:?}");
    site.check(&run);
}

/// Files below a path that hold the secret.
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
