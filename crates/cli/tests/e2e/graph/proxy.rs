//! Proxy between agents and a server that holds requests or responses back, and changes responses.
//!
//! A test can thereby hold an agent in a stage.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use super::fixture::TIMEOUT;

/// Side on which a message is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before the server receives it.
    Request,
    /// After the server handled the request.
    Response,
}

/// Changes the response to a request of this path.
type Change = dyn Fn(&str, &mut Value) + Send + Sync;

struct Rules {
    holds: Mutex<Vec<(Side, String, String, Hold)>>,
    change: Box<Change>,
}

/// A rule that holds messages back until it is released.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<(Mutex<HoldState>, Condvar)>);

#[derive(Default)]
struct HoldState {
    count: usize,
    is_released: bool,
}

impl Hold {
    /// Waits until a message is held.
    pub(crate) fn wait_until_held(&self) {
        let (caught, news) = &*self.0;
        let caught = caught.lock().expect("the lock is not poisoned");
        let (caught, late) = news
            .wait_timeout_while(caught, TIMEOUT, |caught| caught.count == 0)
            .expect("the lock is not poisoned");
        assert!(!late.timed_out() && caught.count > 0, "no message was held");
    }

    /// Releases held messages and all later ones.
    pub(crate) fn release(&self) {
        self.0.0.lock().expect("the lock is not poisoned").is_released = true;
        self.0.1.notify_all();
    }

    /// Blocks the caller until the rule is released.
    fn pass(&self) {
        let (caught, news) = &*self.0;
        let mut caught = caught.lock().expect("the lock is not poisoned");
        if caught.is_released {
            return;
        }
        caught.count += 1;
        news.notify_all();
        drop(news.wait_while(caught, |caught| !caught.is_released).expect("the lock is not poisoned"));
    }
}

/// The proxy. Its threads end with the test process.
pub(crate) struct HoldingProxy {
    address: SocketAddr,
    rules: Arc<Rules>,
}

impl HoldingProxy {
    /// Starts a proxy in front of a server.
    pub(crate) fn new(server: &str) -> Self {
        Self::with_change(server, |_, _| {})
    }

    /// Starts a proxy that changes responses.
    pub(crate) fn with_change(
        server: &str,
        change: impl Fn(&str, &mut Value) + Send + Sync + 'static,
    ) -> Self {
        let upstream: SocketAddr = server.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let rules = Arc::new(Rules { holds: Mutex::default(), change: Box::new(change) });
        let shared = Arc::clone(&rules);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let rules = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(&client, upstream, &rules)));
            }
        });
        Self { address, rules }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Holds messages back whose path contains `path` and whose body contains `text`.
    pub(crate) fn hold(&self, side: Side, path: &str, text: &str) -> Hold {
        let hold = Hold::default();
        let rule = (side, path.to_owned(), text.to_owned(), hold.clone());
        self.rules.holds.lock().expect("the lock is not poisoned").push(rule);
        hold
    }

    pub(crate) fn release_all(&self) {
        for (.., hold) in self.rules.holds.lock().expect("the lock is not poisoned").drain(..) {
            hold.release();
        }
    }

    /// Holds the report of a stage back.
    pub(crate) fn hold_stage(&self, side: Side, stage: &str) -> Hold {
        self.hold(side, "/stage", &format!("\"stage\":\"{stage}\""))
    }
}

impl Rules {
    fn hold_back(&self, side: Side, message: &Message) {
        let text = String::from_utf8_lossy(&message.body);
        let matches = |(at, path, words, _): &&(Side, String, String, Hold)| {
            *at == side && message.path.contains(path) && text.contains(words)
        };
        let holds = self.holds.lock().expect("the lock is not poisoned");
        let found: Vec<Hold> = holds.iter().filter(matches).map(|(.., hold)| hold.clone()).collect();
        drop(holds);
        for hold in found {
            hold.pass();
        }
    }
}

/// A request or response: first line, forwarded headers and body.
struct Message {
    first: String,
    path: String,
    headers: String,
    body: Vec<u8>,
}

impl Message {
    fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut first = String::new();
        if from.read_line(&mut first)? == 0 {
            return Ok(None);
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut headers, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let line = line.trim_end();
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "connection" => {}
                _ => headers.extend([line, "\r\n"]),
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Self { first: first.trim_end().to_owned(), path, headers, body }))
    }

    fn write(&self, mut to: &TcpStream, more: &str) -> io::Result<()> {
        // A response without a body has no length header.
        let is_bare = self.first.contains(" 204 ");
        let length = if is_bare { String::new() } else { format!("content-length: {}\r\n", self.body.len()) };
        let head = format!("{}\r\n{}{more}{length}\r\n", self.first, self.headers);
        to.write_all(&[head.as_bytes(), &self.body].concat())
    }
}

/// Forwards the requests of one connection.
fn serve(client: &TcpStream, upstream: SocketAddr, rules: &Rules) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client.try_clone()?);
    while let Some(request) = Message::read(&mut from)? {
        rules.hold_back(Side::Request, &request);
        let server = TcpStream::connect(upstream)?;
        server.set_read_timeout(Some(TIMEOUT))?;
        request.write(&server, "connection: close\r\n")?;
        let Some(mut response) = Message::read(&mut BufReader::new(server))? else { return Ok(()) };
        if let Ok(mut value) = serde_json::from_slice(&response.body) {
            (rules.change)(&request.path, &mut value);
            response.body = value.to_string().into_bytes();
        }
        rules.hold_back(Side::Response, &request);
        response.write(client, "")?;
    }
    Ok(())
}
