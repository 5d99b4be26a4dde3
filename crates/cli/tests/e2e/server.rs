//! The server process: start, access, resource use and shutdown.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Fixture, TIMEOUT, local_token, on_both, wait_until, wait_until_within};
use crate::process::Process;

on_both!(server_shutdown_answers_every_waiting_claim, up_serves_the_api_and_the_console);

mod sqlite_only {
    use crate::fixture::{Fixture, Kind};

    #[test]
    fn local_server_refuses_foreign_host_headers() {
        super::local_server_refuses_foreign_host_headers(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn public_server_requires_tokens_and_prints_the_first_once() {
        super::public_server_requires_tokens_and_prints_the_first_once(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn server_answers_on_every_loopback_address() {
        super::server_answers_on_every_loopback_address(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn server_raises_its_file_limit() {
        super::server_raises_its_file_limit(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn json_server_prints_the_first_token() {
        super::json_server_prints_the_first_token(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn demo_serves_the_console_on_its_data() {
        super::demo_serves_the_console_on_its_data(&Fixture::bare(Kind::Sqlite));
    }

    #[test]
    fn feed_demo_console_shows_syncs_partitions_and_watermark() {
        let fixture = Fixture::bare(Kind::Sqlite);
        super::feed_demo_console_shows_syncs_partitions_and_watermark(&fixture);
    }

    #[test]
    fn abandoned_requests_leak_no_memory_or_files() {
        super::abandoned_requests_leak_no_memory_or_files(&Fixture::new(Kind::Sqlite));
    }

    #[test]
    fn log_contains_every_request_without_its_contents() {
        super::log_contains_every_request_without_its_contents(&Fixture::new(Kind::Sqlite));
    }
}

/// Starts a server on a free port, and returns its address.
pub(crate) fn server(
    fixture: &Fixture,
    words: &[&str],
    environment: &[(&str, &str)],
) -> (Process, SocketAddr) {
    let mut command = fixture.command(words);
    command.envs(environment.iter().copied());
    // A unique name, because the log of an earlier server of the same name would be read, too.
    let name = words.join("").replace(['.', ':', '/'], "");
    let process = Process::start(fixture, &name, &mut command);
    let address = wait_until("the server listens", || {
        let printed = process.stderr();
        let (_, rest) = printed.split_once("listening on http://")?;
        rest.lines().next()?.trim().parse().ok()
    });
    (process, address)
}

/// Sends a request, with the token of the server if there is one, and returns the connection.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket has a timeout");
    let token = local_token(address).map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}");
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).expect("the server reads");
    stream
}

/// Reads the status and the body of a response.
pub(crate) fn receive(mut stream: TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("the server answers, and closes");
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// Sends a request, and reads the response.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, body) = receive(send(address, method, path, body));
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// Time limit of a shutdown on a busy machine.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(45);

/// Open connections of a server, each with the number of its unread bytes.
fn unread_bytes(address: SocketAddr) -> Vec<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system lists its sockets");
    let own = format!(":{:04X}", address.port());
    let unread = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // ESTABLISHED or CLOSE_WAIT.
        let is_open = words[1].ends_with(&own) && matches!(words[3], "01" | "08");
        usize::from_str_radix(words[4].split(':').nth(1)?, 16).ok().filter(|_| is_open)
    };
    table.lines().skip(1).filter_map(unread).collect()
}

/// Number of connections whose input the server has read completely.
fn read_connections(address: SocketAddr) -> usize {
    unread_bytes(address).iter().filter(|unread| **unread == 0).count()
}

fn server_shutdown_answers_every_waiting_claim(fixture: &Fixture) {
    let (mut server, address) = server(fixture, &["server"], &[]);
    assert!(server.stderr().contains("sign in with `tidemill console`"), "{}", server.stderr());
    let claim =
        |number: usize| json!({"worker": "ann", "request_id": format!("w-{number}"), "wait_secs": 60});
    let waiting: Vec<TcpStream> =
        (0..50).map(|number| send(address, "POST", "/v1/claims", Some(&claim(number)))).collect();
    // An incomplete request must not delay the shutdown.
    let mut incomplete = TcpStream::connect(address).unwrap();
    incomplete.write_all(b"GET /hea").unwrap();
    wait_until("the server has read them", || (read_connections(address) > waiting.len()).then_some(()));
    let started = Instant::now();
    server.signal(Signal::TERM);
    for stream in waiting {
        let (status, body) = receive(stream);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["runs"]), (200, &json!([])));
    }
    // The claims would wait for a minute without the shutdown.
    let answered = started.elapsed();
    assert!(answered < SHUTDOWN_TIMEOUT, "{answered:?}");
    drop(incomplete);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
    println!(
        "50 long polls were answered after {answered:?}, and the server ended after {:?}",
        started.elapsed()
    );
    assert!(started.elapsed() < SHUTDOWN_TIMEOUT, "{:?}", started.elapsed());
}

fn up_serves_the_api_and_the_console(fixture: &Fixture) {
    let (mut up, address) = server(fixture, &["up"], &[]);
    let queued = request(address, "POST", "/v1/runs", Some(&json!({"project": "shop", "env": "staging"})));
    assert_eq!(queued.0, 201, "{queued:?}");
    let id = queued.1["run_id"].as_str().unwrap();
    assert_eq!(fixture.json(&["run", "show", id])["status"], "queued");
    assert_eq!(request(address, "GET", "/readyz", None).0, 200);
    let console = format!("the console is at http://{address}/");
    assert!(up.stderr().contains(&console), "{}", up.stderr());
    let (status, page) = receive(send(address, "GET", &format!("/runs/{id}"), None));
    assert_eq!(status, 200, "{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(id), "{page}");
    let (status, figures) = request(address, "GET", "/metrics", None);
    let figures = figures.as_str().unwrap_or_default().to_owned();
    assert_eq!(status, 200);
    for line in ["tidemill_runs_queued{gate=\"open\"} 1", "tidemill_workers 3"] {
        assert!(figures.lines().any(|found| found == line), "{line} is missing:\n{figures}");
    }
    up.signal(Signal::TERM);
    assert_eq!(up.wait_for_exit(TIMEOUT), Some(0), "{}", up.stderr());
}

fn demo_serves_the_console_on_its_data(fixture: &Fixture) {
    let folder = fixture.path("").display().to_string();
    let words = ["demo", "--runs", "--serve", "--listen", "127.0.0.1:0"];
    let (mut demo, address) = server(fixture, &words, &[("TMPDIR", &folder)]);
    wait_until_within("the demo has ended", Duration::from_secs(90), || {
        demo.stderr().contains("the console is still running").then_some(())
    });
    let (status, page) = receive(send(address, "GET", "/runs?status=success", None));
    assert_eq!((status, page.matches("class=\"state s-success\"").count()), (200, 12), "{page}");
    demo.signal(Signal::TERM);
    assert_eq!(demo.wait_for_exit(TIMEOUT), Some(0), "{}", demo.stderr());
}

fn feed_demo_console_shows_syncs_partitions_and_watermark(fixture: &Fixture) {
    let folder = fixture.path("").display().to_string();
    let words = ["demo", "--stones", "400", "--serve", "--listen", "127.0.0.1:0"];
    let (mut demo, address) = server(fixture, &words, &[("TMPDIR", &folder)]);
    wait_until_within("the demo has ended", Duration::from_secs(90), || {
        demo.stderr().contains("the console is still running").then_some(())
    });
    let page = |path: &str| {
        let (status, page) = receive(send(address, "GET", path, None));
        assert_eq!(status, 200, "{path}: {page}");
        page
    };
    let message = |path: &str| request(address, "GET", path, None).1;
    let (syncs, feed) = (message("/v1/syncs?feed=demo"), page("/feeds/demo"));
    let syncs = syncs["items"].as_array().expect("a list");
    assert_eq!(syncs.len(), 3, "{syncs:?}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    for sync in syncs {
        let run = text(&sync["ops_run_id"]);
        assert!(feed.contains(&format!("href=\"/runs/{run}\"")), "{feed}");
        let shown = page(&format!("/runs/{run}"));
        let partitions = message(&format!("/v1/syncs/{}", text(&sync["run_id"])))["partitions"].take();
        for partition in partitions.as_array().expect("a list") {
            let key = format!("data-key=\"{}\"", text(&partition["partition_id"]));
            let (_, card) = shown.split_once(&key).unwrap_or_else(|| panic!("no {key}: {shown}"));
            let (card, _) = card.split_once("</article>").expect("it ends");
            assert!(card.contains("completed"), "{card}");
        }
        assert!(partitions.as_array().is_some_and(|all| !all.is_empty()) && shown.contains("completed"));
        // Compared to the second, because the page shows fewer digits than the API.
        let watermark = text(&sync["watermark_after"]).replace('T', " ");
        assert!(feed.contains(&watermark[..19]), "{watermark}: {feed}");
    }
    assert!(page("/").contains("href=\"/feeds/demo\""));
    demo.signal(Signal::TERM);
    assert_eq!(demo.wait_for_exit(TIMEOUT), Some(0), "{}", demo.stderr());
}

/// Sends a request with this token, and returns the status.
fn status_with(address: SocketAddr, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket has a timeout");
    let head = "GET /v1/info HTTP/1.1\r\nhost: builder.example\r\nconnection: close\r\n";
    let text = format!("{head}authorization: Bearer {token}\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("the server reads");
    receive(stream).0
}

fn public_server_requires_tokens_and_prints_the_first_once(fixture: &Fixture) {
    for words in [&["server", "--listen", "0.0.0.0:0"][..], &["server", "--auth"]] {
        let (mut first, address) = server(fixture, words, &[]);
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let printed = first.stderr();
        let token = printed.lines().map(str::trim).find(|line| line.starts_with("tm_")).map(str::to_owned);
        assert_eq!(token.is_some(), words.len() == 3, "only the first server prints it: {printed}");
        assert_eq!(request(address, "GET", "/v1/info", None).0, 401);
        assert_eq!(status_with(address, &format!("tm_{}", "0".repeat(64))), 401);
        if let Some(token) = token {
            assert_eq!(status_with(address, &token), 200);
            let remote = format!("http://{address}");
            let message = fixture.json(&["--server", &remote, "--token", &token, "run", "list"]);
            assert_eq!(message, json!([]));
        }
        first.signal(Signal::TERM);
        assert_eq!(first.wait_for_exit(TIMEOUT), Some(0), "{}", first.stderr());
    }
}

/// Reads the JSON output of a server.
fn read_start_output(process: &Process) -> Value {
    wait_until("the server prints its address", || {
        process.stdout().lines().find_map(|line| serde_json::from_str(line).ok())
    })
}

fn json_server_prints_the_first_token(fixture: &Fixture) {
    let words = ["--json", "server", "--auth", "--listen"];
    // A server that cannot start must not create the token.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let refused = fixture.tidemill(&[&words[..], &[busy.as_str()]].concat());
    assert_ne!(refused.code, Some(0), "{refused:?}");
    for is_first in [true, false] {
        let name = format!("json{is_first}");
        let mut command = fixture.command(&[&words[..], &["127.0.0.1:0"]].concat());
        let mut server = Process::start(fixture, &name, &mut command);
        let printed = read_start_output(&server);
        assert_eq!(printed["asks_for_tokens"], json!(true), "{printed}");
        assert_eq!(
            printed.get("first_token").is_some(),
            is_first,
            "only the first server prints it: {printed}"
        );
        if let Some(token) = printed["first_token"].as_str() {
            let address = printed["address"].as_str().and_then(|text| text.strip_prefix("http://"));
            assert_eq!(status_with(address.unwrap().parse().unwrap(), token), 200);
        }
        server.signal(Signal::TERM);
        assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
    }
}

fn local_server_refuses_foreign_host_headers(fixture: &Fixture) {
    let (mut server, address) = server(fixture, &["server"], &[]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /v1/info HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(receive(stream).0, 421);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}

/// Every loopback address can be listened on and used in the Host header.
fn server_answers_on_every_loopback_address(fixture: &Fixture) {
    let (mut server, address) = server(fixture, &["server", "--listen", "127.0.0.2:0"], &[]);
    let mut stream = TcpStream::connect(address).unwrap();
    let token = local_token(address).expect("the server wrote its token");
    let ask = format!(
        "GET /v1/info HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).unwrap();
    assert_eq!(receive(stream).0, 200);
    let info = fixture.json(&["--server", &format!("http://{address}"), "run", "list"]);
    assert_eq!(info, json!([]));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}

/// Resident memory of a process in kilobytes.
fn resident(pid: i32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// Number of open files of a process.
fn files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A server that is started with a low soft limit of open files raises it.
fn server_raises_its_file_limit(fixture: &Fixture) {
    let plain = fixture.command(&["server"]);
    let mut command = Command::new("bash");
    command
        .args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.current_dir(fixture.path(""));
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut process = Process::start(fixture, "few-files", &mut command);
    let address: SocketAddr = wait_until("the server listens", || {
        let printed = process.stderr();
        printed.split_once("listening on http://")?.1.lines().next()?.trim().parse().ok()
    });
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit is listed");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] > 200, "soft and hard: {line}");
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).expect("the server answers");
        assert_eq!(&begin, b"HTTP/1.1 200");
        held.push(stream);
    }
    assert!(files(process.pid()) > 100, "all connections are open");
    process.signal(Signal::TERM);
    assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
}

fn abandoned_requests_leak_no_memory_or_files(fixture: &Fixture) {
    let (mut server, address) = server(fixture, &["server"], &[]);
    let abandon = |from: usize, count: usize| {
        for batch in 0..count / 100 {
            let streams: Vec<TcpStream> = (0..100)
                .map(|number| {
                    let request = format!("gone-{from}-{batch}-{number}");
                    let claim = json!({"worker": "ann", "request_id": request, "wait_secs": 60});
                    send(address, "POST", "/v1/claims", Some(&claim))
                })
                .collect();
            wait_until("the server has read them", || {
                (read_connections(address) >= streams.len()).then_some(())
            });
            drop(streams);
        }
    };
    // The first requests allocate buffers that are kept.
    abandon(0, 300);
    wait_until("the sockets are closed", || unread_bytes(address).is_empty().then_some(()));
    let (before, open) = (resident(server.pid()), files(server.pid()));
    abandon(1, 1_000);
    wait_until("the sockets are closed", || (files(server.pid()) <= open + 2).then_some(()));
    let after = resident(server.pid());
    println!("1,000 abandoned claims: {before} kB before, {after} kB after");
    assert!(after - before < 8 * 1024, "{before} kB before, {after} kB after");
    assert_eq!(request(address, "GET", "/healthz", None).0, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}

fn log_contains_every_request_without_its_contents(fixture: &Fixture) {
    let verbose = [("TIDEMILL_LOG", "tidemill_api=debug"), ("TIDEMILL_LOG_FORMAT", "json")];
    let (mut server, address) = server(fixture, &["server"], &verbose);
    let run = json!({"project": "shop", "env": "staging", "metadata": {"word": "open sesame"}});
    assert_eq!(request(address, "POST", "/v1/runs?token=open-sesame", Some(&run)).0, 201);
    let line = wait_until("the request is in the log", || {
        let printed = server.stderr();
        let lines: Vec<Value> = printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.into_iter().find(|line| line["http.route"] == "/v1/runs")
    });
    assert_eq!((&line["level"], &line["http.status"]), (&json!("DEBUG"), &json!(201)), "{line}");
    assert!(!server.stderr().contains("sesame"), "{}", server.stderr());
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
}
