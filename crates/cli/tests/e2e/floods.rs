//! A flood from one source: slow bodies, idle connections and unknown tokens, and with the token of a viewer live
//! streams, long polls of logs and trickled bodies, all at the same time.
//!
//! An agent and a worker on another source must not miss a heartbeat, and requests of people must succeed. The server
//! answers every request of the agent and the worker, and they report no failed one.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidemill_core::Timestamp;
use tidemill_core::access::{NewToken, Role};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_core::task::job_id;
use tidemill_engine::clock::host_now;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use crate::fixture::{Fixture, Kind, wait_until};
use crate::process::Process;
use crate::server::{receive, server};

/// Source address of the flood. Linux lets a client use every address of 127.0.0.0/8.
const FLOODER: [u8; 4] = [127, 0, 0, 2];
/// The default intervals, because those of other tests are too short for a busy machine.
const SETTINGS: [(&str, &str); 3] = [
    ("TIDEMILL_WORKER_BEAT", "5s"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "20s"),
    // Fewer than the flood opens.
    ("TIDEMILL_SERVER_CONNECTIONS", "800"),
];
/// Upper limit of the time between two heartbeats, which agents and workers send every 5 seconds. A longer time means
/// that one was lost.
const GAP_MAX: Duration = Duration::from_secs(10);
/// Upper limit of the time of 99 of 100 requests, on a busy machine with 2 cores.
const P99_MAX: Duration = Duration::from_secs(10);

#[test]
fn flood_of_one_source_costs_no_heartbeat() {
    flood_costs_no_heartbeat(&Fixture::new(Kind::Sqlite), Duration::from_secs(15));
}

#[test]
#[ignore = "runs for minutes: cargo xtask soak"]
fn soak_flood_of_one_source_costs_no_heartbeat() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        flood_costs_no_heartbeat(&Fixture::new(kind), Duration::from_mins(1));
    }
}

fn token(fixture: &Fixture, role: Role) -> String {
    let new = NewToken {
        name: format!("{role} of the test"),
        role,
        projects: ProjectSet::All,
        expires_in_secs: None,
    };
    let (_, secret) = fixture.block(fixture.engine.create_token(new, "ann")).expect("a token is made");
    secret.reveal().to_owned()
}

fn flood_costs_no_heartbeat(fixture: &Fixture, lasts: Duration) {
    tidemill_api::server::raise_file_limit();
    let (_server, address) = server(fixture, &["server", "--auth"], &SETTINGS);
    let url = format!("http://{address}");
    let remote = |name: &str, role: Role, args: &[&str]| {
        let mut command = fixture.command(args);
        command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", &url);
        command.env("TIDEMILL_TOKEN", token(fixture, role)).envs(SETTINGS);
        Process::start(fixture, name, &mut command)
    };
    let directory = fixture.path("agent").display().to_string();
    let agent_args = ["agent", "run", "--name", "far", "--dir", directory.as_str()];
    let mut agent = remote("agent", Role::Agent, &agent_args);
    let run = fixture.request(QueueRun::new("shop", "staging"));
    let script = "while [ ! -e stop ]; do sleep 0.2; done";
    let mut worker = remote("worker", Role::Worker, &["work", "--", "bash", "-c", script]);
    wait_until("the run is held", || (fixture.run(&run).status == RunState::Running).then_some(()));
    wait_until("the agent is known", || {
        (!fixture.block(fixture.store().agents(None, 10)).ok()?.is_empty()).then_some(())
    });

    let before = [&agent, &worker].map(|process| process.stderr().len());
    let flood = Flood::start(address, &token(fixture, Role::Viewer), &waiting_job(fixture));
    let probe = Probe::start(address, [(); 10].map(|()| token(fixture, Role::Operator)).to_vec());
    let (mut worker_gap, mut agent_gap) = (LongestGap::default(), LongestGap::default());
    let began = Instant::now();
    while began.elapsed() < lasts {
        let workers = fixture.block(fixture.store().workers()).expect("workers are read");
        let agents = fixture.block(fixture.store().agents(None, 10)).expect("agents are read");
        assert!(workers.iter().all(|worker| worker.ended_at.is_none()), "{workers:?}");
        assert!(agents.iter().all(|agent| agent.is_alive(host_now())), "{agents:?}");
        worker_gap.see(workers[0].beat_at);
        agent_gap.see(agents[0].seen_at);
        std::thread::sleep(Duration::from_millis(100));
    }
    // Otherwise a heartbeat that never came would not count.
    worker_gap.see(host_now());
    agent_gap.see(host_now());
    let (rounds, times) = (flood.stop(), probe.stop());
    let (worker_gap, agent_gap, p99) = (worker_gap.longest, agent_gap.longest, times[times.len() * 99 / 100]);
    println!(
        "{rounds} requests of the flood; longest time between heartbeats: worker {worker_gap:?}, agent {agent_gap:?}; \
         {} requests of others, p99 {p99:?}",
        times.len()
    );
    assert!(rounds > 500, "there was no flood: {rounds} requests");
    assert!(worker_gap < GAP_MAX, "{worker_gap:?}");
    assert!(agent_gap < GAP_MAX, "{agent_gap:?}");
    assert!(p99 < P99_MAX, "{p99:?}");
    for (process, before) in [&agent, &worker].into_iter().zip(before) {
        let log = process.stderr();
        assert!(!log[before..].contains(" WARN "), "a request failed: {log}");
    }
    assert_machines_were_answered(&metrics(address, &token(fixture, Role::Viewer)));
    assert!(agent.is_running() && worker.is_running());
    fixture.write("stop", "");
    wait_until("the run ends", || fixture.run(&run).status.is_terminal().then_some(()));
    let ended = fixture.run(&run);
    assert_eq!((ended.status, ended.attempt), (RunState::Success, 1), "{ended:?}");
}

/// The longest time between two heartbeats.
#[derive(Default)]
struct LongestGap {
    last: Option<Timestamp>,
    longest: Duration,
}

impl LongestGap {
    /// Takes the time of the last heartbeat so far.
    fn see(&mut self, at: Timestamp) {
        let gap = self.last.map_or(Duration::ZERO, |last| (at - last).to_std().unwrap_or_default());
        (self.last, self.longest) = (Some(at), self.longest.max(gap));
    }
}

/// Submits a graph, and returns its job. No controller runs, so the job waits.
fn waiting_job(fixture: &Fixture) -> String {
    let graphs = Graphs::new(fixture.engine.clone(), GraphSettings::default());
    let text = "version: 1\njobs:\n  one: {run: 'true'}\n";
    let graph = fixture.block(graphs.submit(SubmitGraph::new("shop", "staging", text, "ann")));
    job_id(&graph.expect("the graph is submitted").run_id, "one")
}

fn metrics(address: SocketAddr, token: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("the server accepts");
    let head = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    write!(stream, "{head}authorization: Bearer {token}\r\n\r\n").expect("the server reads");
    let (status, text) = receive(stream);
    assert_eq!(status, 200, "{text}");
    text
}

/// Asserts that the server refused no request of the agent and the worker, and that requests of the flood were
/// executed. Only they use these routes.
fn assert_machines_were_answered(metrics: &str) {
    let counts = |route: &str| -> Vec<&str> {
        let label = format!("route=\"{route}\"");
        let counts = metrics.lines().filter(|line| line.starts_with("tidemill_http_request_seconds_count{"));
        counts.filter(|line| line.contains(&label)).collect()
    };
    for route in ["/v1/agents/{agent}/beat", "/v1/agents/{agent}/poll", "/v1/workers/{worker}/beat"] {
        let counts = counts(route);
        assert!(counts.len() == 1 && counts[0].contains("class=\"2xx\""), "{route}: {counts:?}");
    }
    // The flood reaches the limits of its token.
    for route in ["/v1/jobs/{job}/logs", "/v1/graphs/check"] {
        let counts = counts(route);
        assert!(counts.iter().any(|line| line.contains("class=\"4xx\"")), "{route}: {counts:?}");
    }
}

async fn connect(source: [u8; 4], address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(address).await
}

/// Reads until the server closes. Returns the status of the response, or 0.
async fn read_response(stream: &mut TcpStream) -> u16 {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Clients that attack the server until they are stopped.
struct Flood {
    runtime: Runtime,
    requests: Arc<AtomicU64>,
}

impl Flood {
    fn start(address: SocketAddr, viewer: &str, job: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("the runtime is created");
        let requests = Arc::new(AtomicU64::new(0));
        let body = "x".repeat(1024 * 1024 - 1);
        let unfinished = |path: &str, body: &str| {
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048576\r\n\r\n{body}")
        };
        let get = |path: &str| {
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {viewer}\r\n\r\n")
        };
        let kinds = [
            (100, unfinished("/v1/claims", &body)),
            (20, unfinished("/v1/hooks/shop", &body[..200_000])),
            (600, String::new()),
            (150, get("/v1/stream")),
            (150, get(&format!("/v1/jobs/{job}/logs?wait_secs=30"))),
        ];
        for (clients, text) in kinds {
            let text: Arc<str> = text.into();
            for _ in 0..clients {
                runtime.spawn(attack(address, text.clone(), requests.clone()));
            }
        }
        let head =
            "POST /v1/graphs/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1048576\r\nauthorization:";
        let head: Arc<str> = format!("{head} Bearer {viewer}\r\n\r\n").into();
        for _ in 0..80 {
            runtime.spawn(trickle(address, head.clone(), requests.clone()));
        }
        for client in 0..20 {
            runtime.spawn(guess(address, client, requests.clone()));
        }
        Self { runtime, requests }
    }

    /// Ends the flood, and returns the number of its requests.
    fn stop(self) -> u64 {
        self.runtime.shutdown_background();
        self.requests.load(Ordering::Relaxed)
    }
}

/// Sends a text, holds the connection until the server closes it, and repeats that.
async fn attack(address: SocketAddr, text: Arc<str>, requests: Arc<AtomicU64>) {
    loop {
        if let Ok(mut stream) = connect(FLOODER, address).await {
            requests.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(text.as_bytes()).await;
            let mut some = [0; 4096];
            while let Ok(1..) = stream.read(&mut some).await {}
        }
        // Bounds the load that the flood itself puts on the machine.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Sends a body at a little more than the minimum rate of 4 KB per second, until the server closes, and repeats that.
async fn trickle(address: SocketAddr, head: Arc<str>, requests: Arc<AtomicU64>) {
    loop {
        if let Ok(mut stream) = connect(FLOODER, address).await {
            requests.fetch_add(1, Ordering::Relaxed);
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                sent = stream.write_all(&[b'x'; 512]).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Sends unknown tokens, each after the response to the last one.
async fn guess(address: SocketAddr, client: u64, requests: Arc<AtomicU64>) {
    for number in 0_u64.. {
        let Ok(mut stream) = connect(FLOODER, address).await else { continue };
        let token = format!("tm_{client:032x}{number:032x}");
        let head = "GET /v1/info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        let _ = stream.write_all(format!("{head}authorization: Bearer {token}\r\n\r\n").as_bytes()).await;
        read_response(&mut stream).await;
        requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Requests of people on another source. Some of their tokens are new to the server.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Probe {
    fn start(address: SocketAddr, tokens: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("the runtime is created").block_on(probe(address, &tokens, &stopped))
        });
        Self { stop, thread }
    }

    /// Ends the requests, and returns their times in order.
    fn stop(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().expect("every request of others succeeds");
        times.sort();
        times
    }
}

async fn probe(address: SocketAddr, tokens: &[String], stopped: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        // A new token every second.
        let token = &tokens[(times.len() / 10).min(tokens.len() - 1)];
        let body = json!({"project": "shop", "env": "production"}).to_string();
        let head = "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        let length = body.len();
        let text = format!("{head}authorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}");
        let began = Instant::now();
        let mut stream = connect([127, 0, 0, 1], address).await.expect("the server accepts");
        stream.write_all(text.as_bytes()).await.expect("the server reads");
        let status = read_response(&mut stream).await;
        assert_eq!(status, 201, "request {} after {:?}", times.len(), began.elapsed());
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    times
}
