//! Traces: several processes, one trace per run, decoded by an OTLP receiver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use prost::Message as _;
use rustix::process::Signal;
use serde_json::json;

use crate::commands::text;
use crate::feed::{add, supplier, tidemill};
use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::process::Process;
use crate::server::{request, server};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[derive(Debug, Clone, PartialEq)]
struct ReceivedSpan {
    trace: String,
    name: String,
    role: String,
    took_nanos: u64,
}

/// A receiver of OTLP over HTTP.
struct Receiver {
    endpoint: String,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let endpoint = format!("http://{}", listener.local_addr().expect("it has an address"));
        let spans: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let shared = spans.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || receive(stream, &shared));
            }
        });
        Self { endpoint, spans }
    }

    /// Roles and names of the spans of a trace.
    fn spans_of(&self, trace: &str) -> Vec<(String, String)> {
        let spans = self.spans.lock().expect("the lock is not poisoned");
        let ours = spans.iter().filter(|span| span.trace == trace);
        let mut pairs: Vec<_> = ours.map(|span| (span.role.clone(), span.name.clone())).collect();
        pairs.sort();
        pairs.dedup();
        pairs
    }
}

/// Reads all requests of a connection.
fn receive(stream: TcpStream, spans: &Mutex<Vec<ReceivedSpan>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line, mut first) = (0, String::new(), String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if first.is_empty() {
                first.clone_from(&line);
            }
            let field = line.to_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        assert!(first.starts_with("POST /v1/traces "), "{first}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body is complete");
        let request = ExportTraceServiceRequest::decode(&body[..]).expect("the body is OTLP");
        spans
            .lock()
            .expect("the lock is not poisoned")
            .extend(request.resource_spans.into_iter().flat_map(received_spans));
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if reader.get_mut().write_all(answer).is_err() {
            return;
        }
    }
}

fn received_spans(resource: opentelemetry_proto::tonic::trace::v1::ResourceSpans) -> Vec<ReceivedSpan> {
    let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
    spans
        .map(|span| {
            let role = span.attributes.iter().find(|attribute| attribute.key == "tidemill.role");
            let role = match role.and_then(|role| role.value.as_ref()?.value.as_ref()) {
                Some(Any::StringValue(role)) => role.clone(),
                _ => String::new(),
            };
            let trace: [u8; 16] = span.trace_id.try_into().expect("a trace has sixteen bytes");
            ReceivedSpan {
                trace: format!("{:032x}", u128::from_be_bytes(trace)),
                name: span.name,
                role,
                took_nanos: span.end_time_unix_nano - span.start_time_unix_nano,
            }
        })
        .collect()
}

/// Trace id of a run: the digits of its run id.
fn trace_of(run: &str) -> String {
    run.trim_start_matches("run-").replace('-', "")
}

#[test]
fn run_has_one_trace_across_server_and_worker() {
    let fixture = Fixture::new(Kind::Postgres);
    let receiver = Receiver::start();
    let (mut server, address) = server(&fixture, &["server"], &[(ENDPOINT, &receiver.endpoint)]);
    let queued = request(address, "POST", "/v1/runs", Some(&json!({"project": "shop", "env": "staging"})));
    let run = queued.1["run_id"].as_str().unwrap().to_owned();
    let environment = [(ENDPOINT, receiver.endpoint.as_str())];
    let mut worker = Process::worker_with(&fixture, "bob", &["--drain"], "sleep 0.05", &environment);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit(TIMEOUT), Some(0), "{}", server.stderr());
    let found = wait_until("the spans arrive", || {
        let found = receiver.spans_of(&trace_of(&run));
        let has = |role: &str, name: &str| {
            found.iter().any(|pair| (pair.0.as_str(), pair.1.as_str()) == (role, name))
        };
        (has("server", "queue") && has("work", "claim") && has("work", "carry") && has("work", "finish"))
            .then_some(found)
    });
    let spans = receiver.spans.lock().unwrap();
    let carried = spans.iter().find(|span| span.name == "carry").unwrap();
    assert!(carried.took_nanos >= 50_000_000, "{carried:?}");
    println!("the trace of {run}: {found:?}");
}

#[test]
fn sync_has_one_trace_across_all_roles() {
    let fixture = Fixture::new(Kind::Sqlite);
    let receiver = Receiver::start();
    let (mut supplier, endpoint) = supplier(&fixture, &["--stones", "300"]);
    fixture.ok(&["migrate"]);
    add(&fixture, &endpoint);
    let queued = tidemill(&fixture, &["--json", "feed", "sync", "nivoda-natural"]).value();
    let run = text(&queued, "run_id").to_owned();
    for role in ["scheduler", "worker", "consolidator"] {
        let mut command = fixture.command(&[role, "--once"]);
        command.env("FEED_PASSWORD", "open sesame").env(ENDPOINT, &receiver.endpoint);
        crate::process::run(&mut command).ok();
    }
    wait_until("the spans arrive", || {
        let found = receiver.spans_of(&trace_of(&run));
        let wanted = [("scheduler", "plan"), ("worker", "page"), ("consolidator", "batch")];
        let has = |(role, name): &(&str, &str)| found.contains(&((*role).to_owned(), (*name).to_owned()));
        wanted.iter().all(has).then_some(())
    });
    supplier.signal(Signal::TERM);
    assert_eq!(supplier.wait_for_exit(TIMEOUT), Some(0), "{}", supplier.stderr());
}
