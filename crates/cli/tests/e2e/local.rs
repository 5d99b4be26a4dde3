//! A local server: access for the user who started it, and for no other user.

mod terminal;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Kind, TIDEMILL, TIMEOUT, wait_until};
use crate::process::{Output, Process, not_tested, run};
use crate::server::receive;

/// User and group without any right on the files of the test.
const NOBODY: u32 = 65_534;

/// `tidemill` with the default directory of tokens, which is below the directory of the fixture.
fn command(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.command(args);
    command.env_remove("TIDEMILL_SERVER_TOKEN_DIR");
    command
}

fn remote(fixture: &Fixture, address: SocketAddr, args: &[&str]) -> Output {
    let server = format!("http://{address}");
    run(command(fixture, args).env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", server))
}

/// Starts a server, and returns its address.
fn start(fixture: &Fixture, name: &str, args: &[&str]) -> (Process, SocketAddr) {
    let process = Process::start(fixture, name, &mut command(fixture, args));
    let address = wait_until("the server listens", || {
        let printed = process.stderr();
        let (_, rest) = printed.split_once("listening on http://")?;
        rest.lines().next()?.trim().parse().ok()
    });
    (process, address)
}

fn token_file(fixture: &Fixture, address: SocketAddr) -> PathBuf {
    fixture.path(&format!(".local/state/tidemill/127.0.0.1-{}.token", address.port()))
}

fn stop(mut server: Process) {
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}

/// Sends a GET request with these header lines, and returns the status, the headers and the body.
fn get(address: SocketAddr, path: &str, fields: &str) -> (u16, String, String) {
    use std::io::Read as _;
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket has a timeout");
    let text = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(text.as_bytes()).expect("the server reads");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("the server answers, and closes");
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o777
}

#[test]
fn user_of_a_local_server_needs_no_token_option() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (server, address) = start(&fixture, "first", &["server"]);
    assert!(!server.stderr().contains("tm_"), "no secret is logged: {}", server.stderr());
    let queued =
        remote(&fixture, address, &["--json", "run", "queue", "--project", "shop", "--env", "staging"]);
    assert_eq!(queued.value()["created"], true, "{queued:?}");
    let by_name =
        command(&fixture, &["--server", &format!("http://localhost:{}", address.port()), "run", "list"])
            .env_remove("TIDEMILL_DATABASE")
            .env("HTTP_PROXY", "http://127.0.0.1:1")
            .env("http_proxy", "http://127.0.0.1:1")
            .output();
    assert_eq!(by_name.expect("it runs").status.code(), Some(0), "a proxy is not used");
    let who = fixture.sql("SELECT who FROM ops.audit WHERE action = 'runs.create'").expect("the audit log");
    assert_eq!(who, ["ann"]);

    // Another server of the same user at the same time, then the first one again at its address.
    let (second, other) = start(&fixture, "second", &["server"]);
    for address in [address, other] {
        assert_eq!(remote(&fixture, address, &["run", "list"]).code, Some(0));
    }
    let file = token_file(&fixture, address);
    let before = std::fs::read_to_string(&file).expect("the token is readable");
    stop(server);
    assert!(!file.exists(), "the file ends with its server");
    let (again, _) = start(&fixture, "again", &["server", "--listen", &address.to_string()]);
    assert_ne!(std::fs::read_to_string(&file).expect("the token is readable"), before);
    assert_eq!(remote(&fixture, address, &["run", "list"]).code, Some(0));
    stop(second);
    stop(again);
}

#[test]
fn other_users_of_the_machine_are_refused() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (server, address) = start(&fixture, "server", &["server"]);
    let (status, _, body) = get(address, "/v1/info", "");
    assert_eq!(status, 401, "{body}");
    let guess = format!("authorization: Bearer tm_{}\r\n", "0".repeat(64));
    assert_eq!(get(address, "/v1/info", &guess).0, 401);
    for (path, open) in [("/healthz", true), ("/readyz", true), ("/openapi.json", true), ("/metrics", false)]
    {
        assert_eq!(get(address, path, "").0, if open { 200 } else { 401 }, "{path}");
    }
    // Another user has a home of its own, without the token.
    let elsewhere = tempfile::Builder::new().prefix("tidemill-other-").tempdir().expect("a directory");
    let binary = elsewhere.path().join("tidemill");
    std::fs::copy(TIDEMILL, &binary).expect("the binary is copied");
    let mut other = Command::new(&binary);
    fixture.prepare(&mut other);
    other.args(["--server", &format!("http://{address}"), "run", "list"]);
    other.current_dir("/").env("HOME", elsewhere.path());
    let mut read = Command::new("cat");
    fixture.prepare(&mut read);
    read.arg(token_file(&fixture, address)).current_dir("/");
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(elsewhere.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        other.uid(NOBODY).gid(NOBODY);
        let read = run(read.uid(NOBODY).gid(NOBODY));
        assert_ne!(read.code, Some(0), "another user reads the token: {read:?}");
    } else {
        not_tested("reading the token as another user: this user is not root");
    }
    let refused = run(&mut other);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("only answers to the user who started it"), "{refused:?}");
    assert!(refused.stderr.contains("run the command as that user"), "{refused:?}");
    stop(server);
}

#[test]
fn token_file_of_another_user_is_not_trusted() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (server, address) = start(&fixture, "server", &["server"]);
    let file = token_file(&fixture, address);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let refused = remote(&fixture, address, &["run", "list"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("other users can access the token file"), "{refused:?}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    assert_eq!(remote(&fixture, address, &["run", "list"]).code, Some(0));
    if rustix::process::geteuid().is_root() {
        chown(&file, Some(NOBODY), Some(NOBODY)).expect("chown");
        let refused = remote(&fixture, address, &["run", "list"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("is not a file of yours"), "{refused:?}");
    } else {
        not_tested("a token file of another user: this user is not root");
    }
    stop(server);
}

#[test]
fn one_time_link_signs_in_to_the_console_once() {
    let fixture = Fixture::new(Kind::Sqlite);
    let verbose = [("TIDEMILL_LOG", "debug"), ("TIDEMILL_LOG_FORMAT", "json")];
    let mut up = command(&fixture, &["up", "--no-agent"]);
    let up = Process::start(&fixture, "up", up.envs(verbose));
    let address: SocketAddr = wait_until("the server listens", || {
        let printed = up.stderr();
        printed.split_once("listening on http://")?.1.lines().next()?.trim().parse().ok()
    });
    let (status, head, _) = get(address, "/", "");
    assert!(status == 303 && head.contains("location: /sign-in?next=%2f"), "{head}");
    let page = get(address, "/sign-in", "").2;
    assert!(page.contains("tidemill up") && page.contains("tidemill console"), "{page}");

    let link: Value = remote(&fixture, address, &["--json", "console"]).value();
    let link = link["url"].as_str().expect("a link").to_owned();
    let path = link.strip_prefix(&format!("http://{address}")).expect("the link is at the server").to_owned();
    assert!(path.starts_with("/sign-in?code=tml_"), "{path}");
    let head = format!("HEAD {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.write_all(head.as_bytes()).expect("the server reads");
    assert_eq!(receive(stream).0, 200, "a look at the link does not use it up");
    let (status, head, body) = get(address, &path, "");
    assert_eq!(status, 200, "{body}");
    for line in ["refresh: 0;url=/", "referrer-policy: no-referrer", "cache-control: no-store"] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().expect("a value"));
    assert_eq!(get(address, "/", &cookie).0, 200);
    assert_eq!(get(address, "/v1/runs", &cookie).0, 200);

    let (status, head, page) = get(address, &path, "");
    assert!(status == 401 && !head.contains("set-cookie"), "the link was used: {head}");
    assert!(page.contains("used before or is too old") && page.contains("tidemill console"), "{page}");
    assert_eq!(get(address, &path, &cookie).0, 200, "a signed-in browser goes on");
    assert!(!up.stderr().contains("tml_") && !up.stderr().contains("tms_"), "{}", up.stderr());
    stop(up);
    let away = remote(&fixture, address, &["console"]);
    assert!(away.code == Some(1) && away.stderr.contains("tidemill up"), "{away:?}");
}

#[test]
fn created_files_are_private_under_any_umask() {
    let fixture = Fixture::bare(Kind::Sqlite);
    let database = fixture.path("own.db");
    let plain = command(&fixture, &["up"]);
    let mut up = Command::new("bash");
    fixture.prepare(&mut up);
    up.args(["-c", "umask 000 && exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args());
    up.env("TIDEMILL_SERVER_LISTEN", "127.0.0.1:0").env("TIDEMILL_DATABASE", &database);
    let up = Process::start(&fixture, "up", &mut up);
    let address = wait_until("the server listens", || {
        up.stderr().split_once("listening on http://")?.1.lines().next()?.trim().parse().ok()
    });
    let agent = fixture.path("own.agent");
    wait_until("the agent has its directory", || agent.join("agent.json").exists().then_some(()));
    wait_until("the log exists", || fixture.path("own.db-shm").exists().then_some(()));
    let copy = fixture.path("copy.db");
    let mut backup = Command::new("bash");
    fixture.prepare(&mut backup);
    backup
        .args(["-c", "umask 000 && exec \"$0\" backup copy.db", TIDEMILL])
        .env("TIDEMILL_DATABASE", &database);
    assert_eq!(run(&mut backup).code, Some(0));
    let token = token_file(&fixture, address);
    for file in [&database, &fixture.path("own.db-wal"), &fixture.path("own.db-shm"), &copy, &token] {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    for directory in [&agent, &agent.join("tasks"), &fixture.path(".local/state/tidemill")] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    stop(up);
}

#[test]
fn readable_database_earns_a_warning() {
    let fixture = Fixture::new(Kind::Sqlite);
    let healthy = fixture.json(&["doctor"]);
    let of_files = |report: &Value| {
        let findings = report["findings"].as_array().expect("findings").clone();
        findings.into_iter().find(|finding| finding["what"] == "permissions").expect("the files are checked")
    };
    assert_eq!(of_files(&healthy)["ok"], json!(true), "{healthy}");
    std::fs::set_permissions(&fixture.url, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let doctor = fixture.tidemill(&["--json", "doctor"]);
    assert_eq!(doctor.code, Some(3), "{doctor:?}");
    let finding = of_files(&doctor.value());
    let hint = format!("chmod 600 {}", fixture.url);
    assert!(finding["told"].as_str().is_some_and(|told| told.contains(&hint)), "{finding}");
    let (server, _) = start(&fixture, "server", &["server"]);
    wait_until("the server warns", || server.stderr().contains(&format!("run `{hint}`")).then_some(()));
    stop(server);
}

/// In a service without HOME the user database names the directory; without any directory the server says what to set.
#[test]
fn server_without_a_writable_home_names_the_setting() {
    let fixture = Fixture::new(Kind::Sqlite);
    let refused = run(command(&fixture, &["server"]).env("HOME", "/proc/none"));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("could not write the token of the server to `/proc/none/"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("TIDEMILL_SERVER_TOKEN_DIR"), "{refused:?}");
    let relative = run(command(&fixture, &["server"]).env("HOME", "relative"));
    assert_eq!(relative.code, Some(2), "{relative:?}");
    assert!(relative.stderr.contains("TIDEMILL_SERVER_TOKEN_DIR"), "{relative:?}");
}
