//! A server whose certificate an authority of our own has signed: whoever is told of the authority trusts it.

use std::process::Command;

use rustix::process::Signal;
use tidemill_core::run::RunState;
use tidemill_testkit::authority::Signed;

use super::command;
use crate::process::{Process, Ran, run};
use crate::stage::{PATIENCE, Stage, on_both, until};

on_both!(whoever_knows_the_authority_speaks_to_its_server);

/// A server that speaks TLS, and its address.
fn server(stage: &Stage, signed: &Signed) -> (Process, String) {
    let file = |path: &std::path::Path| path.display().to_string();
    let (certificate, key) = (file(&signed.certificate), file(&signed.key));
    let words = ["server", "--tls-cert", &certificate, "--tls-key", &key];
    let process = Process::start(stage, "server", &mut stage.command(&words));
    let port = until("the server listens", || {
        let said = process.said();
        let (_, rest) = said.split_once("listening on https://")?;
        rest.lines().next()?.trim().rsplit(':').next()?.parse::<u16>().ok()
    });
    (process, format!("https://localhost:{port}"))
}

fn whoever_knows_the_authority_speaks_to_its_server(stage: &Stage) {
    let ours = Signed::make(&stage.path(""), "ours").expect("certificates are made");
    let others = Signed::make(&stage.path(""), "others").expect("certificates are made");
    let (mut server, url) = server(stage, &ours);
    let authority = ours.authority.to_str().expect("a path");
    let trusting = |args: &[&str]| -> Command {
        let mut command = command(stage, &url, args);
        command.env("TIDEMILL_CA_FILE", authority);
        command
    };
    let queue = ["run", "queue", "--project", "shop", "--env", "staging"];
    let id = run(&mut trusting(&queue)).ok().trim().parse().expect("an id");
    let by_option =
        run(&mut command(stage, &url, &["--ca-file", authority, "run", "show", "--json", &format!("{id}")]));
    assert_eq!(by_option.value()["run_id"], format!("{id}"), "{by_option:?}");

    let away = |ran: Ran| {
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: the server at {url} does not answer: ")), "{ran:?}");
        assert!(ran.stderr.contains("certificate"), "the reason is told: {ran:?}");
    };
    away(run(&mut command(stage, &url, &["run", "list"])));
    let foreign = others.authority.to_str().expect("a path");
    away(run(&mut command(stage, &url, &["--ca-file", foreign, "run", "list"])));

    // A worker and an agent take the same way.
    assert_eq!(run(&mut trusting(&["work", "--drain", "--", "true"])).code, Some(0));
    stage.until(&id, RunState::Success);
    let mut agent = Process::start(stage, "agent", &mut trusting(&["agent", "run", "--name", "far-hand"]));
    until("the agent is there", || {
        run(&mut trusting(&["agent", "list"])).stdout.contains("far-hand").then_some(())
    });
    for process in [&mut agent, &mut server] {
        process.signal(Signal::TERM);
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
    }

    let key = ours.key.to_str().expect("a path");
    for (file, sentence) in [
        ("nowhere.pem", "error: could not read the certificates in `nowhere.pem`: "),
        (key, "error: there is no certificate in `"),
    ] {
        let refused = run(&mut command(stage, &url, &["--ca-file", file, "run", "list"]));
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.starts_with(sentence), "{refused:?}");
    }
}
