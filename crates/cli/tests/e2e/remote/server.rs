//! A server process that other tests start, kill and restart at the same address.

use std::net::{SocketAddr, TcpListener, TcpStream};

use tidemill_client::{Client, HttpOptions, HttpTransport};

use crate::fixture::{Fixture, Kind, local_token, wait_until};
use crate::process::Process;

/// A server on the database of a fixture.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    /// Starts a server, and waits until it answers.
    pub(crate) fn start(fixture: &Fixture) -> Self {
        Self::start_with(fixture, &[])
    }

    /// Starts a server with additional environment variables.
    pub(crate) fn start_with(fixture: &Fixture, environment: &[(&str, &str)]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it has an address");
        drop(free);
        Self { process: start_process(fixture, address, environment), address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn client(&self) -> Client {
        let options = HttpOptions { server: self.url(), token: None, authorities: Vec::new() };
        let address = self.address;
        let transport = HttpTransport::local(options, Box::new(move || Ok(local_token(address))));
        Client::new(transport.expect("the address is valid"))
    }

    /// Number of open connections to the server.
    pub(crate) fn connections(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections can be read");
        let own = format!(":{:04X}", self.address.port());
        let is_open = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&own) && fields[3] == "01"
        };
        table.lines().filter(is_open).count()
    }

    /// Sends SIGKILL, and waits until the server is dead.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again at the same address.
    pub(crate) fn restart(&mut self, fixture: &Fixture) {
        self.process = start_process(fixture, self.address, &[]);
    }
}

fn start_process(fixture: &Fixture, address: SocketAddr, environment: &[(&str, &str)]) -> Process {
    let mut command = fixture.command(&["server", "--listen", &address.to_string()]);
    command.envs(environment.iter().copied());
    let mut process = Process::start(fixture, "server", &mut command);
    wait_until("the server answers", || {
        assert!(process.is_running(), "the server ended: {} {}", process.stdout(), process.stderr());
        // The server writes its token after it has bound its address.
        local_token(address).and_then(|_| TcpStream::connect(address).ok())
    });
    process
}

#[test]
fn server_answers_until_it_is_killed() {
    let fixture = Fixture::new(Kind::Sqlite);
    let mut server = Server::start(&fixture);
    let client = server.client();
    let info = fixture.block(client.info()).expect("the server answers");
    assert_eq!((info.caller.as_str(), info.projects.is_all()), ("ann", true));
    server.kill();
    assert!(fixture.block(client.info()).is_err_and(|error| error.is_transient()));
    server.restart(&fixture);
    assert!(fixture.block(client.info()).is_ok());
}
