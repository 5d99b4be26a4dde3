//! Agents that are cut off from the server, shorter or longer than `on-agent-lost` allows.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::is_alive;

on_both!(
    short_network_cut_does_not_affect_the_job,
    long_network_cut_moves_the_job_after_its_command_is_dead,
    forgotten_agent_stops_its_command_on_return,
);

/// Proxy between agents and a server that can be cut.
struct CuttableProxy {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl CuttableProxy {
    fn new(server: &str) -> Self {
        let upstream: SocketAddr = server.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (cut, held) = (is_cut.clone(), open.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(upstream) else { continue };
                let ends = [&client, &server].map(|end| end.try_clone().expect("a socket is shared"));
                held.lock().expect("the lock is not poisoned").extend(ends);
                let (from, to) = (client.try_clone().expect("shared"), server.try_clone().expect("shared"));
                std::thread::spawn(move || forward(from, to));
                std::thread::spawn(move || forward(server, client));
            }
        });
        Self { address, is_cut, open }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for end in self.open.lock().expect("the lock is not poisoned").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn restore(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn short_network_cut_does_not_affect_the_job(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let proxy = CuttableProxy::new(&graphs.url);
    let _agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let work = "sleep 2; echo done > done.txt";
    let more = "outputs: {done: done.txt}\non-agent-lost: rerun after 30s";
    let run = graphs
        .submit(&graph(&[graphs.step("long", &[], work, more), graphs.step("next", &["long"], "true", "")]));
    graphs.wait_for_line("begin long");
    proxy.cut();
    graphs.wait_for_line("end long");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(graphs.code(&run, "next"), "waiting_on_dependencies");
    proxy.restore();
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin long"), ledger.count("begin next")), (1, 1), "{ledger:?}");
    let job = graphs.job(&run, "long");
    assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(1), &json!(0)), "{job}");
    graphs.check(&run);
}

fn long_network_cut_moves_the_job_after_its_command_is_dead(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let proxy = CuttableProxy::new(&graphs.url);
    let _agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs.submit(&graph(&[graphs.step("long", &[], work, "on-agent-lost: rerun after 10s")]));
    graphs.wait_for_line("begin long");
    graphs.wait_for_code(&run, "long", "executing");
    let pid = graphs.ledger().pid("long");
    proxy.cut();
    let _other = graphs.agent("other", &[]);
    wait_until_within("the other agent runs it", TIMEOUT, || {
        let is_again = graphs.ledger().count("begin long") == 2;
        assert!(!is_again || !is_alive(pid), "the second command started while the first one was alive");
        is_again.then_some(())
    });
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    proxy.restore();
    // The first agent is back, and its reports are ignored.
    std::thread::sleep(Duration::from_secs(3));
    let job = graphs.job(&run, "long");
    assert_eq!(job["tasks"][0]["end"], json!("lost"), "{job}");
    assert_eq!(job["job"]["code"], json!("succeeded"));
    graphs.check(&run);
}

/// The agent was forgotten although its command was alive. The command is stopped when the agent reconnects.
fn forgotten_agent_stops_its_command_on_return(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let proxy = CuttableProxy::new(&graphs.url);
    let mut agent = graphs.agent_at("ann", &proxy.url(), &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs.submit(&graph(&[graphs.step("long", &[], work, "")]));
    graphs.wait_for_line("begin long");
    graphs.wait_for_code(&run, "long", "executing");
    let pid = graphs.ledger().pid("long");
    let refused = fixture.tidemill(&["agent", "forget", "ann"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("may still run") && refused.stderr.contains("--force"), "{refused:?}");
    proxy.cut();
    let _other = graphs.agent("other", &[]);
    assert!(fixture.ok(&["agent", "forget", "ann", "--force"]).contains("forgotten"));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert!(is_alive(pid), "the agent is cut off");
    proxy.restore();
    wait_until_within("the first command is stopped", TIMEOUT, || (!is_alive(pid)).then_some(()));
    // The agent continues, and is registered again.
    wait_until_within("the agent is registered", TIMEOUT, || {
        fixture.ok(&["agent", "list"]).contains("ann").then_some(())
    });
    assert!(agent.is_running());
    assert_eq!(graphs.job(&run, "long")["tasks"][0]["end"], json!("forgotten"));
}
