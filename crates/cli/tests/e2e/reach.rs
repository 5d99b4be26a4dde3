//! The lists of `[reach]` with real processes: a server that requires tokens, and roles with other configurations.

use crate::commands::text;
use crate::feed::supplier;
use crate::fixture::{Fixture, Kind, wait_until};
use crate::process::{Output, Process, run};
use std::net::{TcpListener, TcpStream};

fn with_password(fixture: &Fixture, args: &[&str]) -> Output {
    run(fixture.command(args).env("FEED_PASSWORD", "open sesame"))
}

/// Starts a server that requires tokens, and returns its URL.
fn server(fixture: &Fixture) -> (Process, String) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it has an address");
    drop(free);
    let mut command = fixture.command(&["server", "--auth", "--listen", &address.to_string()]);
    let process = Process::start(fixture, "server", &mut command);
    wait_until("the server answers", || TcpStream::connect(address).ok());
    (process, format!("http://{address}"))
}

#[test]
fn project_feed_needs_the_lists_of_every_process() {
    let fixture = Fixture::new(Kind::Sqlite);
    let account = ["--stones", "60", "--username", "ann", "--password-env", "SUPPLIER_PASSWORD"];
    let (mut supplier, endpoint) = supplier(&fixture, &account);
    let host = endpoint.split('/').nth(2).expect("an endpoint has a host");
    let lists = format!("[reach.project.shop]\nenvironment = [\"FEED_PASSWORD\"]\nhosts = [\"{host}\"]\n");
    fixture.write("tidemill.toml", &lists);
    let narrow = fixture.write("narrow.toml", "[reach]\nhosts = [\"*.example.com\"]\n").display().to_string();
    let token = fixture.json(&["token", "create", "bob", "--role", "admin", "--project", "shop"]);
    let (mut server, url) = server(&fixture);
    let add = |endpoint: &str, variable: &str| {
        let name = ["feed", "add", "theirs", "--project", "shop", "--username", "ann"];
        let rest = ["--endpoint", endpoint, "--password-env", variable, "--server", &url];
        let mut command = fixture.command(&[&name[..], &rest].concat());
        run(command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_TOKEN", text(&token, "secret")))
    };
    for (refused, key) in [
        (add(&endpoint, "HOME"), "reach.project.shop.environment"),
        (add("http://127.0.0.1:22/", "FEED_PASSWORD"), "reach.project.shop.hosts"),
    ] {
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(refused.stderr.contains(key), "{refused:?}");
    }
    add(&endpoint, "FEED_PASSWORD").ok();
    let shown = fixture.ok(&["feed", "show", "theirs"]);
    assert!(shown.contains("by the project; the lists of [reach] apply"), "{shown}");

    // A scheduler with other lists fails the sync, and says why.
    let first = fixture.json(&["feed", "sync", "theirs"]);
    with_password(&fixture, &["--config", &narrow, "scheduler", "--once"]).ok();
    let why = fixture.ok(&["run", "why", text(&first, "run_id")]);
    assert!(why.contains("feed `theirs` is out of reach"), "{why}");
    let shown = fixture.ok(&["feed", "show", "theirs"]);
    assert!(shown.contains("refused by the configuration: project `shop` may not use"), "{shown}");
    let doctor = fixture.tidemill(&["--config", &narrow, "doctor"]);
    assert!(doctor.stdout.contains("feed theirs is refused here"), "{doctor:?}");
    let checked = fixture.ok(&["config", "check"]);
    assert!(checked.contains("reach of project shop: environment FEED_PASSWORD; hosts "), "{checked}");

    // With the lists, the sync succeeds, and the refusal is gone.
    let second = fixture.json(&["feed", "sync", "theirs"]);
    for role in ["scheduler", "worker", "consolidator"] {
        with_password(&fixture, &[role, "--once"]).ok();
    }
    assert_eq!(text(&fixture.json(&["run", "show", text(&second, "run_id")]), "status"), "success");
    assert!(fixture.ok(&["feed", "show", "theirs"]).contains("health     up"));
    server.kill();
    supplier.kill();
}
