//! Commands that a server throttles with 429.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, Kind};
use crate::process::{Output, run};

const EMPTY: &str = r#"{"items":[],"next":null}"#;
const WAIT: &str = r#"{"code":"throttled","message":"wait before the next one"}"#;

/// Reads the head of a request, and responds.
fn respond(mut stream: TcpStream, status: &str, body: &str) {
    let (mut head, mut some) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read(&mut some).expect("the command sends a request");
        assert!(read > 0, "the command closed the connection");
        head.extend_from_slice(&some[..read]);
    }
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("the command reads");
}

/// Runs a command whose first response is 429 with this Retry-After, and returns its output and its duration.
fn run_throttled(secs: u64) -> (Output, Duration) {
    let fixture = Fixture::bare(Kind::Sqlite);
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let status = format!("429 Too Many Requests\r\nretry-after: {secs}");
        respond(listener.accept().expect("the command connects").0, &status, WAIT);
        respond(listener.accept().expect("the command connects again").0, "200 OK", EMPTY);
    });
    let started = Instant::now();
    let ran = run(&mut super::command(&fixture, &format!("http://{address}"), &["--json", "run", "list"]));
    (ran, started.elapsed())
}

#[test]
fn throttled_command_waits_and_retries() {
    let (ran, took) = run_throttled(1);
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "[]"), "{ran:?}");
    assert!(took >= Duration::from_secs(1), "it waited for {took:?}");
}

#[test]
fn command_reports_a_retry_after_that_is_too_long() {
    let (ran, _) = run_throttled(600);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("wait before the next one"), "{ran:?}");
}
