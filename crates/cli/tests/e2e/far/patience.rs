//! Commands that a server asks to wait.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::process::{Ran, run};
use crate::stage::{Kind, Stage};

const EMPTY: &str = r#"{"items":[],"next":null}"#;
const WAIT: &str = r#"{"code":"throttled","message":"wait before the next one"}"#;

/// Reads the head of a request, and answers it.
fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let (mut head, mut some) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read(&mut some).expect("the command asks");
        assert!(read > 0, "the command went away");
        head.extend_from_slice(&some[..read]);
    }
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("the command reads");
}

/// What a command does where the first answer is to wait for so long; and how long it took.
fn told_to_wait(secs: u64) -> (Ran, Duration) {
    let stage = Stage::bare(Kind::Sqlite);
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let status = format!("429 Too Many Requests\r\nretry-after: {secs}");
        answer(listener.accept().expect("the command comes").0, &status, WAIT);
        answer(listener.accept().expect("the command comes again").0, "200 OK", EMPTY);
    });
    let began = Instant::now();
    let ran = run(&mut super::command(&stage, &format!("http://{address}"), &["--json", "run", "list"]));
    (ran, began.elapsed())
}

#[test]
fn a_command_that_is_told_to_wait_waits_and_asks_again() {
    let (ran, took) = told_to_wait(1);
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "[]"), "{ran:?}");
    assert!(took >= Duration::from_secs(1), "it waited for {took:?}");
}

#[test]
fn a_command_that_would_wait_for_too_long_says_what_it_was_told() {
    let (ran, _) = told_to_wait(600);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("wait before the next one"), "{ran:?}");
}
