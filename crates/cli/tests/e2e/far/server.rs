//! A server process for other tests: started, killed, and started again at the same address.

use std::net::{SocketAddr, TcpListener, TcpStream};

use tidemill_client::{Client, Http, HttpOptions};

use crate::process::Process;
use crate::stage::{Kind, Stage, until};

/// A server on a stage's database.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    /// Starts a server, and waits until it answers.
    pub(crate) fn start(stage: &Stage) -> Self {
        Self::start_with(stage, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn start_with(stage: &Stage, environment: &[(&str, &str)]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = free.local_addr().expect("it has an address");
        drop(free);
        Self { process: started(stage, address, environment), address }
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
        self.process = started(stage, self.address, &[]);
    }
}

/// The server as people start it, at this address.
fn started(stage: &Stage, address: SocketAddr, environment: &[(&str, &str)]) -> Process {
    let mut command = stage.command(&["server", "--listen", &address.to_string()]);
    command.envs(environment.iter().copied());
    let mut process = Process::start(stage, "server", &mut command);
    until("the server answers", || {
        assert!(process.is_running(), "the server ended: {} {}", process.wrote(), process.said());
        TcpStream::connect(address).ok()
    });
    process
}

#[test]
fn a_server_answers_until_it_is_killed() {
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
