//! An agent that cannot reach its server, for a while that is shorter or longer than its job allows.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::is_alive;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    a_cut_that_is_shorter_than_allowed_costs_nothing,
    after_a_longer_cut_the_command_is_dead_and_another_agent_runs_it,
    an_agent_that_was_forgotten_stops_what_it_ran_when_it_is_back,
);

/// Passes bytes on between agents and a server, until it is cut.
struct Line {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Line {
    fn to(server: &str) -> Self {
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
                held.lock().expect("nobody panics with it").extend(ends);
                let (from, to) = (client.try_clone().expect("shared"), server.try_clone().expect("shared"));
                std::thread::spawn(move || pass(from, to));
                std::thread::spawn(move || pass(server, client));
            }
        });
        Self { address, is_cut, open }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for end in self.open.lock().expect("nobody panics with it").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn a_cut_that_is_shorter_than_allowed_costs_nothing(stage: &Stage) {
    let site = Site::start(stage);
    let line = Line::to(&site.url);
    let _agent = site.agent_at("ann", &line.url(), &[]);
    let work = "sleep 2; echo done > done.txt";
    let more = "outputs: {done: done.txt}\non-agent-lost: rerun after 30s";
    let run =
        site.submit(&graph(&[site.step("long", &[], work, more), site.step("next", &["long"], "true", "")]));
    site.until_written("begin long");
    line.cut();
    site.until_written("end long");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.code(&run, "next"), "waiting_on_dependencies");
    line.mend();
    assert_eq!(site.until_ended(&run), RunState::Success);
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin long"), ledger.count("begin next")), (1, 1), "{ledger:?}");
    let job = site.job(&run, "long");
    assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(1), &json!(0)), "{job}");
    site.check(&run);
}

fn after_a_longer_cut_the_command_is_dead_and_another_agent_runs_it(stage: &Stage) {
    let site = Site::start(stage);
    let line = Line::to(&site.url);
    let _agent = site.agent_at("ann", &line.url(), &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = site.submit(&graph(&[site.step("long", &[], work, "on-agent-lost: rerun after 10s")]));
    site.until_written("begin long");
    site.until_code(&run, "long", "executing");
    let pid = site.ledger().pid("long");
    line.cut();
    let _other = site.agent("other", &[]);
    until_within("the other one runs it", PATIENCE, || {
        let is_again = site.ledger().count("begin long") == 2;
        assert!(!is_again || !is_alive(pid), "it ran again while the first command was alive");
        is_again.then_some(())
    });
    assert_eq!(site.until_ended(&run), RunState::Success);
    line.mend();
    // The first agent is back: what it reports of its attempt does not count any more.
    std::thread::sleep(Duration::from_secs(3));
    let job = site.job(&run, "long");
    assert_eq!(job["tasks"][0]["end"], json!("lost"), "{job}");
    assert_eq!(job["job"]["code"], json!("succeeded"));
    site.check(&run);
}

/// A person was wrong: the command of the agent lives. It is stopped as soon as the agent reaches the server again.
fn an_agent_that_was_forgotten_stops_what_it_ran_when_it_is_back(stage: &Stage) {
    let site = Site::start(stage);
    let line = Line::to(&site.url);
    let mut agent = site.agent_at("ann", &line.url(), &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = site.submit(&graph(&[site.step("long", &[], work, "")]));
    site.until_written("begin long");
    site.until_code(&run, "long", "executing");
    let pid = site.ledger().pid("long");
    let refused = stage.tidemill(&["agent", "forget", "ann"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("may still run") && refused.stderr.contains("--force"), "{refused:?}");
    line.cut();
    let _other = site.agent("other", &[]);
    assert!(stage.ok(&["agent", "forget", "ann", "--force"]).contains("forgotten"));
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert!(is_alive(pid), "nobody could tell it to stop");
    line.mend();
    until_within("the first command is stopped", PATIENCE, || (!is_alive(pid)).then_some(()));
    // The agent itself goes on, and is known again.
    until_within("the agent is back", PATIENCE, || {
        stage.ok(&["agent", "list"]).contains("ann").then_some(())
    });
    assert!(agent.is_running());
    assert_eq!(site.job(&run, "long")["tasks"][0]["end"], json!("forgotten"));
}
