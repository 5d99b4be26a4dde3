//! A server process for other tests: started, killed, and started again at the same address.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_client::{Client, Http, HttpOptions};
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, Patience, Upkeep};
use tidemill_store::{Options, Store};

use crate::process::Process;
use crate::stage::{DEAD_AFTER, Kind, Stage, until};

const LISTEN: &str = "E2E_LISTEN";
const DATABASE: &str = "E2E_DATABASE";

/// A server on a stage's database.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    /// Starts a server, and waits until it answers.
    pub(crate) fn start(stage: &Stage) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = free.local_addr().expect("it has an address");
        drop(free);
        Self { process: started(stage, address), address }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let options = HttpOptions { server: self.url(), token: None, authorities: Vec::new() };
        Client::new(Http::new(options).expect("the address is one"))
    }

    /// How many connections to it are open.
    pub(crate) fn connections(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections can be read");
        let own = format!(":{:04X}", self.address.port());
        let is_open = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&own) && fields[3] == "01"
        };
        table.lines().filter(is_open).count()
    }

    /// Kills it with SIGKILL, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again at the same address.
    pub(crate) fn resume(&mut self, stage: &Stage) {
        self.process = started(stage, self.address);
    }
}

/// This very test binary serves, when it is told where.
fn started(stage: &Stage, address: SocketAddr) -> Process {
    let own = std::env::current_exe().expect("the test has a file");
    let mut command = Command::new(own);
    stage.adopt(&mut command);
    command.args(["--exact", "far::server::a_server_answers_until_it_is_killed", "--nocapture"]);
    command.env(LISTEN, address.to_string()).env(DATABASE, &stage.url);
    let mut process = Process::start(stage, "server", &mut command);
    until("the server answers", || {
        assert!(process.is_running(), "the server ended: {} {}", process.wrote(), process.said());
        TcpStream::connect(address).ok()
    });
    process
}

/// Serves for ever.
async fn serve(address: String, database: String) {
    let listener = tokio::net::TcpListener::bind(address).await.expect("the address is free");
    let options = Options { connections: 8, ..Options::new(database, host_now) };
    let store = Store::open(&options).await.expect("the database opens");
    let engine = Engine::new(store, Clock::Database, Patience::None);
    let quick = Duration::from_millis(200);
    let upkeep = Upkeep { dead_after: DEAD_AFTER, every: quick, idle: quick, ..Upkeep::default() };
    let (syncs, keeper) = (Syncs::new(engine.clone(), SyncSettings::default()), engine);
    tokio::spawn(async move { keeper.keep_up(&upkeep).await });
    let door = router(App::new(syncs, Access::Open { name: "ann".to_owned() }));
    axum::serve(listener, door).await.expect("the server serves");
}

#[test]
fn a_server_answers_until_it_is_killed() {
    if let (Ok(address), Ok(database)) = (std::env::var(LISTEN), std::env::var(DATABASE)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.expect("a runtime is made").block_on(serve(address, database));
    }
    let stage = Stage::new(Kind::Sqlite);
    let mut server = Server::start(&stage);
    let client = server.client();
    let info = stage.block(client.info()).expect("the server answers");
    assert_eq!((info.caller.as_str(), info.project), ("ann", None));
    server.kill();
    assert!(stage.block(client.info()).is_err_and(|error| error.is_transient()));
    server.resume(&stage);
    assert!(stage.block(client.info()).is_ok());
}
