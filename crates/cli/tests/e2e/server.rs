//! The server as a process: how it begins, who it answers, what it leaves behind, how it ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::Process;
use crate::stage::{PATIENCE, Stage, on_both, until, until_within};

on_both!(everybody_who_waits_is_answered_when_the_server_is_told_to_end, up_serves_beside_everything_else);

mod sqlite_only {
    use crate::stage::{Kind, Stage};

    #[test]
    fn a_server_without_tokens_answers_this_machine_alone() {
        super::a_server_without_tokens_answers_this_machine_alone(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn a_server_for_others_asks_for_tokens_and_shows_the_first_one_once() {
        super::a_server_for_others_asks_for_tokens_and_shows_the_first_one_once(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn a_server_answers_under_any_address_of_this_machine() {
        super::a_server_answers_under_any_address_of_this_machine(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn a_server_has_as_many_files_as_it_may() {
        super::a_server_has_as_many_files_as_it_may(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn a_server_that_answers_in_json_tells_the_first_token_too() {
        super::a_server_that_answers_in_json_tells_the_first_token_too(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn the_demo_leaves_the_console_open_on_its_data() {
        super::the_demo_leaves_the_console_open_on_its_data(&Stage::bare(Kind::Sqlite));
    }

    #[test]
    fn the_demo_of_a_feed_shows_its_syncs_their_partitions_and_the_watermark() {
        let stage = Stage::bare(Kind::Sqlite);
        super::the_demo_of_a_feed_shows_its_syncs_their_partitions_and_the_watermark(&stage);
    }

    #[test]
    fn a_thousand_abandoned_requests_leave_nothing_behind() {
        super::a_thousand_abandoned_requests_leave_nothing_behind(&Stage::new(Kind::Sqlite));
    }

    #[test]
    fn the_log_says_every_request_and_nothing_that_is_in_it() {
        super::the_log_says_every_request_and_nothing_that_is_in_it(&Stage::new(Kind::Sqlite));
    }
}

/// A server on a free port, and where it listens.
pub(crate) fn server(stage: &Stage, words: &[&str], environment: &[(&str, &str)]) -> (Process, SocketAddr) {
    let mut command = stage.command(words);
    command.envs(environment.iter().copied());
    // A name of its own: a second server of the same stage must not be taken for the first.
    let name = words.join("").replace(['.', ':', '/'], "");
    let process = Process::start(stage, &name, &mut command);
    let address = until("the server listens", || {
        let said = process.said();
        let (_, rest) = said.split_once("listening on http://")?;
        rest.lines().next()?.trim().parse().ok()
    });
    (process, address)
}

/// Sends a request; the connection on which the answer comes.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> TcpStream {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).expect("the server reads");
    stream
}

/// The status and the body of the answer.
pub(crate) fn receive(mut stream: TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("the server answers, and closes");
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// Asks, and reads the answer.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, body) = receive(send(address, method, path, body));
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

/// How long the end of a server may take on a busy machine.
const SOON: Duration = Duration::from_secs(45);

/// The open connections of a server, by the bytes that came and that it has not read.
fn sockets(address: SocketAddr) -> Vec<usize> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system lists its sockets");
    let own = format!(":{:04X}", address.port());
    let unread = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Established, or closed by the caller alone.
        let is_open = words[1].ends_with(&own) && matches!(words[3], "01" | "08");
        usize::from_str_radix(words[4].split(':').nth(1)?, 16).ok().filter(|_| is_open)
    };
    table.lines().skip(1).filter_map(unread).collect()
}

/// The connections of a server of which it has read all that came.
fn read_by(address: SocketAddr) -> usize {
    sockets(address).iter().filter(|unread| **unread == 0).count()
}

fn everybody_who_waits_is_answered_when_the_server_is_told_to_end(stage: &Stage) {
    let (mut server, address) = server(stage, &["server"], &[]);
    assert!(server.said().contains("it asks for no token"), "{}", server.said());
    let claim =
        |number: usize| json!({"worker": "ann", "request_id": format!("w-{number}"), "wait_secs": 60});
    let waiting: Vec<TcpStream> =
        (0..50).map(|number| send(address, "POST", "/v1/claims", Some(&claim(number)))).collect();
    // Somebody who does not even finish the question must not hold up the end.
    let mut rude = TcpStream::connect(address).unwrap();
    rude.write_all(b"GET /hea").unwrap();
    until("the server has read them", || (read_by(address) > waiting.len()).then_some(()));
    let began = Instant::now();
    server.signal(Signal::TERM);
    for stream in waiting {
        let (status, body) = receive(stream);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["runs"]), (200, &json!([])));
    }
    // The claims would wait for a minute.
    let answered = began.elapsed();
    assert!(answered < SOON, "{answered:?}");
    drop(rude);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
    println!("50 long-polls were answered in {answered:?}, and the server ended in {:?}", began.elapsed());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

fn up_serves_beside_everything_else(stage: &Stage) {
    let (mut up, address) = server(stage, &["up"], &[]);
    let queued = ask(address, "POST", "/v1/runs", Some(&json!({"project": "shop", "env": "staging"})));
    assert_eq!(queued.0, 201, "{queued:?}");
    let id = queued.1["run_id"].as_str().unwrap();
    assert_eq!(stage.json(&["run", "show", id])["status"], "queued");
    assert_eq!(ask(address, "GET", "/readyz", None).0, 200);
    let console = format!("the console is at http://{address}/");
    assert!(up.said().contains(&console), "{}", up.said());
    let (status, page) = receive(send(address, "GET", &format!("/runs/{id}"), None));
    assert_eq!(status, 200, "{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(id), "{page}");
    let (status, figures) = ask(address, "GET", "/metrics", None);
    let figures = figures.as_str().unwrap_or_default().to_owned();
    assert_eq!(status, 200);
    for line in ["tidemill_runs_queued{gate=\"open\"} 1", "tidemill_workers 3"] {
        assert!(figures.lines().any(|found| found == line), "{line} is missing:\n{figures}");
    }
    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(PATIENCE), Some(0), "{}", up.said());
}

fn the_demo_leaves_the_console_open_on_its_data(stage: &Stage) {
    let folder = stage.path("").display().to_string();
    let words = ["demo", "--runs", "--serve", "--listen", "127.0.0.1:0"];
    let (mut demo, address) = server(stage, &words, &[("TMPDIR", &folder)]);
    until_within("the demo is over", Duration::from_secs(90), || {
        demo.said().contains("the console stays open on the demo's data").then_some(())
    });
    let (status, page) = receive(send(address, "GET", "/runs?status=success", None));
    assert_eq!((status, page.matches("class=\"state s-success\"").count()), (200, 12), "{page}");
    demo.signal(Signal::TERM);
    assert_eq!(demo.ended_within(PATIENCE), Some(0), "{}", demo.said());
}

fn the_demo_of_a_feed_shows_its_syncs_their_partitions_and_the_watermark(stage: &Stage) {
    let folder = stage.path("").display().to_string();
    let words = ["demo", "--stones", "400", "--serve", "--listen", "127.0.0.1:0"];
    let (mut demo, address) = server(stage, &words, &[("TMPDIR", &folder)]);
    until_within("the demo is over", Duration::from_secs(90), || {
        demo.said().contains("the console stays open on the demo's data").then_some(())
    });
    let page = |path: &str| {
        let (status, page) = receive(send(address, "GET", path, None));
        assert_eq!(status, 200, "{path}: {page}");
        page
    };
    let told = |path: &str| ask(address, "GET", path, None).1;
    let (syncs, feed) = (told("/v1/syncs?feed=demo"), page("/feeds/demo"));
    let syncs = syncs["items"].as_array().expect("a list");
    assert_eq!(syncs.len(), 3, "{syncs:?}");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    for sync in syncs {
        let run = text(&sync["ops_run_id"]);
        assert!(feed.contains(&format!("href=\"/runs/{run}\"")), "{feed}");
        let shown = page(&format!("/runs/{run}"));
        let partitions = told(&format!("/v1/syncs/{}", text(&sync["run_id"])))["partitions"].take();
        for partition in partitions.as_array().expect("a list") {
            let key = format!("data-key=\"{}\"", text(&partition["partition_id"]));
            let (_, card) = shown.split_once(&key).unwrap_or_else(|| panic!("no {key}: {shown}"));
            let (card, _) = card.split_once("</article>").expect("it ends");
            assert!(card.contains("completed"), "{card}");
        }
        assert!(partitions.as_array().is_some_and(|all| !all.is_empty()) && shown.contains("completed"));
        // To the second: the page shows fewer digits of it than the door.
        let watermark = text(&sync["watermark_after"]).replace('T', " ");
        assert!(feed.contains(&watermark[..19]), "{watermark}: {feed}");
    }
    assert!(page("/").contains("href=\"/feeds/demo\""));
    demo.signal(Signal::TERM);
    assert_eq!(demo.ended_within(PATIENCE), Some(0), "{}", demo.said());
}

/// The status of an answer to somebody who shows this token.
fn status_with(address: SocketAddr, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
    let head = "GET /v1/info HTTP/1.1\r\nhost: mill.example\r\nconnection: close\r\n";
    let text = format!("{head}authorization: Bearer {token}\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("the server reads");
    receive(stream).0
}

fn a_server_for_others_asks_for_tokens_and_shows_the_first_one_once(stage: &Stage) {
    for words in [&["server", "--listen", "0.0.0.0:0"][..], &["server", "--auth"]] {
        let (mut first, address) = server(stage, words, &[]);
        let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
        let said = first.said();
        let token = said.lines().map(str::trim).find(|line| line.starts_with("tm_")).map(str::to_owned);
        assert_eq!(token.is_some(), words.len() == 3, "only the first server shows it: {said}");
        assert_eq!(ask(address, "GET", "/v1/info", None).0, 401);
        assert_eq!(status_with(address, &format!("tm_{}", "0".repeat(64))), 401);
        if let Some(token) = token {
            assert_eq!(status_with(address, &token), 200);
            let far = format!("http://{address}");
            let told = stage.json(&["--server", &far, "--token", &token, "run", "list"]);
            assert_eq!(told, json!([]));
        }
        first.signal(Signal::TERM);
        assert_eq!(first.ended_within(PATIENCE), Some(0), "{}", first.said());
    }
}

/// What a server says of itself with `--json`.
fn told(process: &Process) -> Value {
    until("the server says where it is", || {
        process.wrote().lines().find_map(|line| serde_json::from_str(line).ok())
    })
}

fn a_server_that_answers_in_json_tells_the_first_token_too(stage: &Stage) {
    let words = ["--json", "server", "--auth", "--listen"];
    // A server that cannot begin must not take the token with it.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let refused = stage.tidemill(&[&words[..], &[busy.as_str()]].concat());
    assert_ne!(refused.code, Some(0), "{refused:?}");
    for is_first in [true, false] {
        let name = format!("json{is_first}");
        let mut command = stage.command(&[&words[..], &["127.0.0.1:0"]].concat());
        let mut server = Process::start(stage, &name, &mut command);
        let said = told(&server);
        assert_eq!(said["asks_for_tokens"], json!(true), "{said}");
        assert_eq!(said.get("first_token").is_some(), is_first, "only the first server shows it: {said}");
        if let Some(token) = said["first_token"].as_str() {
            let address = said["address"].as_str().and_then(|text| text.strip_prefix("http://"));
            assert_eq!(status_with(address.unwrap().parse().unwrap(), token), 200);
        }
        server.signal(Signal::TERM);
        assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
    }
}

fn a_server_without_tokens_answers_this_machine_alone(stage: &Stage) {
    let (mut server, address) = server(stage, &["server"], &[]);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /v1/info HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(receive(stream).0, 421);
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
}

/// Every address that leads to this machine alone is one to listen on, and to be asked under.
fn a_server_answers_under_any_address_of_this_machine(stage: &Stage) {
    let (mut server, address) = server(stage, &["server", "--listen", "127.0.0.2:0"], &[]);
    let mut stream = TcpStream::connect(address).unwrap();
    let ask = format!("GET /v1/info HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).unwrap();
    assert_eq!(receive(stream).0, 200);
    let info = stage.json(&["--server", &format!("http://{address}"), "run", "list"]);
    assert_eq!(info, json!([]));
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
}

/// The memory of a process, in kilobytes.
fn resident(pid: i32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// The open files of a process.
fn files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A server that is started with room for a few files makes room for its connections.
fn a_server_has_as_many_files_as_it_may(stage: &Stage) {
    let plain = stage.command(&["server"]);
    let mut command = Command::new("bash");
    command
        .args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.current_dir(stage.path(""));
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut process = Process::start(stage, "few-files", &mut command);
    let address: SocketAddr = until("the server listens", || {
        let said = process.said();
        said.split_once("listening on http://")?.1.lines().next()?.trim().parse().ok()
    });
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("it is told");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] > 200, "soft and hard: {line}");
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).expect("the server answers");
        assert_eq!(&begin, b"HTTP/1.1 200");
        held.push(stream);
    }
    assert!(files(process.pid()) > 100, "all of them are open at once");
    process.signal(Signal::TERM);
    assert_eq!(process.ended_within(PATIENCE), Some(0), "{}", process.said());
}

fn a_thousand_abandoned_requests_leave_nothing_behind(stage: &Stage) {
    let (mut server, address) = server(stage, &["server"], &[]);
    let abandon = |from: usize, count: usize| {
        for batch in 0..count / 100 {
            let streams: Vec<TcpStream> = (0..100)
                .map(|number| {
                    let request = format!("gone-{from}-{batch}-{number}");
                    let claim = json!({"worker": "ann", "request_id": request, "wait_secs": 60});
                    send(address, "POST", "/v1/claims", Some(&claim))
                })
                .collect();
            until("the server has read them", || (read_by(address) >= streams.len()).then_some(()));
            drop(streams);
        }
    };
    // What is set aside once is set aside by these.
    abandon(0, 300);
    until("the sockets are closed", || sockets(address).is_empty().then_some(()));
    let (before, open) = (resident(server.pid()), files(server.pid()));
    abandon(1, 1_000);
    until("the sockets are closed", || (files(server.pid()) <= open + 2).then_some(()));
    let after = resident(server.pid());
    println!("1,000 abandoned claims: {before} kB before, {after} kB after");
    assert!(after - before < 8 * 1024, "{before} kB before, {after} kB after");
    assert_eq!(ask(address, "GET", "/healthz", None).0, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
}

fn the_log_says_every_request_and_nothing_that_is_in_it(stage: &Stage) {
    let loud = [("TIDEMILL_LOG", "tidemill_api=debug"), ("TIDEMILL_LOG_FORMAT", "json")];
    let (mut server, address) = server(stage, &["server"], &loud);
    let run = json!({"project": "shop", "env": "staging", "metadata": {"word": "open sesame"}});
    assert_eq!(ask(address, "POST", "/v1/runs?token=open-sesame", Some(&run)).0, 201);
    let line = until("the request is in the log", || {
        let said = server.said();
        let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.into_iter().find(|line| line["http.route"] == "/v1/runs")
    });
    assert_eq!((&line["level"], &line["http.status"]), (&json!("DEBUG"), &json!(201)), "{line}");
    assert!(!server.said().contains("sesame"), "{}", server.said());
    server.signal(Signal::TERM);
    assert_eq!(server.ended_within(PATIENCE), Some(0), "{}", server.said());
}
