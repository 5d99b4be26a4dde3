//! `tidemill up` on a terminal: it prints the one-time link and opens it, and does neither elsewhere.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::{command, get, mode};
use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::process::Process;

/// `tidemill` on a desktop whose program to open files is a script of the test.
fn on_a_desktop(fixture: &Fixture, args: &[&str]) -> Command {
    let programs = fixture.path("programs");
    fs::create_dir_all(&programs).expect("the directory is created");
    let opener = programs.join("xdg-open");
    let target = fixture.path("opened").display().to_string();
    // The rename makes the whole text visible at once.
    let script =
        format!("#!/bin/sh\n{{ echo \"$1\"; cat \"$1\"; }} > {target}.new\nmv {target}.new {target}\n");
    fs::write(&opener, script).expect("the opener is written");
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).expect("the mode is set");
    let mut up = command(fixture, args);
    let path = std::env::var("PATH").expect("PATH is set");
    up.env("PATH", format!("{}:{path}", programs.display())).env("DISPLAY", ":99");
    up
}

/// The same command with a pseudo-terminal as its standard streams.
fn on_a_terminal(fixture: &Fixture, plain: &Command) -> Command {
    let words: Vec<String> = std::iter::once(plain.get_program())
        .chain(plain.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let mut terminal = Command::new("script");
    fixture.prepare(&mut terminal);
    terminal.args(["--quiet", "--return", "--command", &format!("exec {}", words.join(" ")), "/dev/null"]);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal
}

/// Waits for the address in an output.
fn address_in(read: impl Fn() -> String) -> SocketAddr {
    wait_until("the server listens", || {
        let printed = read();
        let (_, rest) = printed.split_once("listening on http://")?;
        rest.split_once(['\r', '\n'])?.0.trim().parse().ok()
    })
}

/// Stops the program in the terminal, which ends with its exit code.
fn stop(fixture: &Fixture, mut terminal: Process) {
    let is_up =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "tidemill\n");
    let up = fixture.processes().into_iter().find(is_up).and_then(Pid::from_raw).expect("it runs");
    kill_process(up, Signal::TERM).expect("it runs");
    assert_eq!(terminal.wait_for_exit(TIMEOUT), Some(0), "{}", terminal.stdout());
}

#[test]
fn up_prints_and_opens_the_link_on_a_terminal() {
    let fixture = Fixture::new(Kind::Sqlite);
    let up = on_a_desktop(&fixture, &["up", "--no-agent"]);
    let terminal = Process::start(&fixture, "terminal", &mut on_a_terminal(&fixture, &up));
    let address = address_in(|| terminal.stdout());
    let link = wait_until("the link is printed", || {
        let printed = terminal.stdout();
        let (_, rest) = printed.split_once("the console is at ")?;
        Some(rest.split_once(" (valid once, for 10m)")?.0.to_owned())
    });
    let path = link.strip_prefix(&format!("http://{address}")).expect("the link is at the server");
    assert!(path.starts_with("/sign-in?code=tml_"), "{link}");
    let opened = wait_until("the link is opened", || fs::read_to_string(fixture.path("opened")).ok());
    let (page, text) = opened.split_once('\n').expect("a path and a text");
    // Other users see arguments of programs, so the link is in a file of its own.
    assert!(!page.contains("tml_"), "{page}");
    assert_eq!(mode(page.as_ref()), 0o600);
    assert!(text.contains(&format!("url={link}\"")), "{text}");
    let (status, head, _) = get(address, path, "");
    assert!(status == 200 && head.contains("set-cookie: "), "the link signs in: {head}");
    assert_eq!(get(address, path, "").0, 401, "it works once");
    stop(&fixture, terminal);
}

#[test]
fn up_opens_no_link_without_a_terminal_or_if_told_so() {
    let fixture = Fixture::new(Kind::Sqlite);
    let mut up = Process::start(&fixture, "up", &mut on_a_desktop(&fixture, &["up", "--no-agent"]));
    address_in(|| up.stderr());
    wait_until("it says where the console is", || up.stderr().contains("the console is at ").then_some(()));
    up.signal(Signal::TERM);
    assert_eq!(up.wait_for_exit(TIMEOUT), Some(0), "{}", up.stderr());
    assert!(!up.stderr().contains("tml_") && !up.stdout().contains("tml_"), "a log holds no link");

    let up = on_a_desktop(&fixture, &["up", "--no-agent", "--no-open"]);
    let terminal = Process::start(&fixture, "terminal", &mut on_a_terminal(&fixture, &up));
    address_in(|| terminal.stdout());
    wait_until("the link is printed", || terminal.stdout().contains("/sign-in?code=tml_").then_some(()));
    stop(&fixture, terminal);
    assert!(!fixture.path("opened").exists());
}
