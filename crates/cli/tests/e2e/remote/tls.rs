//! A TLS server with a certificate of a private authority.

use std::process::Command;

use rustix::process::Signal;
use tidemill_core::run::RunState;
use tidemill_testkit::authority::SignedCertificate;

use super::command;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::{Output, Process, run};

on_both!(client_trusts_a_server_with_the_given_authority);

/// Starts a TLS server, and returns its address.
fn server(fixture: &Fixture, signed: &SignedCertificate) -> (Process, String) {
    let file = |path: &std::path::Path| path.display().to_string();
    let (certificate, key) = (file(&signed.certificate), file(&signed.key));
    let words = ["server", "--tls-cert", &certificate, "--tls-key", &key];
    let process = Process::start(fixture, "server", &mut fixture.command(&words));
    let port = wait_until("the server listens", || {
        let printed = process.stderr();
        let (_, rest) = printed.split_once("listening on https://")?;
        rest.lines().next()?.trim().rsplit(':').next()?.parse::<u16>().ok()
    });
    (process, format!("https://localhost:{port}"))
}

fn client_trusts_a_server_with_the_given_authority(fixture: &Fixture) {
    let ours = SignedCertificate::make(&fixture.path(""), "ours").expect("certificates are made");
    let others = SignedCertificate::make(&fixture.path(""), "others").expect("certificates are made");
    let (mut server, url) = server(fixture, &ours);
    let authority = ours.authority.to_str().expect("a path");
    let trusting = |args: &[&str]| -> Command {
        let mut command = command(fixture, &url, args);
        command.env("TIDEMILL_CA_FILE", authority);
        command
    };
    let queue = ["run", "queue", "--project", "shop", "--env", "staging"];
    let id = run(&mut trusting(&queue)).ok().trim().parse().expect("an id");
    let by_option = run(&mut command(
        fixture,
        &url,
        &["--ca-file", authority, "run", "show", "--json", &format!("{id}")],
    ));
    assert_eq!(by_option.value()["run_id"], format!("{id}"), "{by_option:?}");

    let assert_unreachable = |ran: Output| {
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: the server at {url} does not answer: ")), "{ran:?}");
        assert!(ran.stderr.contains("certificate"), "the reason is reported: {ran:?}");
    };
    assert_unreachable(run(&mut command(fixture, &url, &["run", "list"])));
    let foreign = others.authority.to_str().expect("a path");
    assert_unreachable(run(&mut command(fixture, &url, &["--ca-file", foreign, "run", "list"])));

    // A worker and an agent use the same option.
    assert_eq!(run(&mut trusting(&["work", "--drain", "--", "true"])).code, Some(0));
    fixture.wait_for_state(&id, RunState::Success);
    let mut agent =
        Process::start(fixture, "agent", &mut trusting(&["agent", "run", "--name", "remote-agent"]));
    wait_until("the agent is registered", || {
        run(&mut trusting(&["agent", "list"])).stdout.contains("remote-agent").then_some(())
    });
    for process in [&mut agent, &mut server] {
        process.signal(Signal::TERM);
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }

    let key = ours.key.to_str().expect("a path");
    for (file, sentence) in [
        ("nowhere.pem", "error: could not read certificates from `nowhere.pem`: "),
        (key, "contains no certificate"),
    ] {
        let refused = run(&mut command(fixture, &url, &["--ca-file", file, "run", "list"]));
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(sentence), "{refused:?}");
    }
}
