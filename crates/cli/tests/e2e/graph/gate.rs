//! A gate between agents and a server: it holds back what a test names, before or after the server has heard it, and
//! changes answers on their way. So an agent can be kept in a stage for as long as a test wants.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use super::ground::PATIENCE;

/// Where something is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before the server has heard it.
    Question,
    /// After the server has heard it; the agent does not know.
    Answer,
}

/// Changes the answer to a question of this path.
type Change = dyn Fn(&str, &mut Value) + Send + Sync;

/// What is done to whatever passes.
struct Rules {
    holds: Mutex<Vec<(Side, String, String, Hold)>>,
    change: Box<Change>,
}

/// Something that is held back while this is not let go.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<(Mutex<Caught>, Condvar)>);

#[derive(Default)]
struct Caught {
    count: usize,
    is_let_go: bool,
}

impl Hold {
    /// Waits until something was caught.
    pub(crate) fn until_caught(&self) {
        let (caught, news) = &*self.0;
        let caught = caught.lock().expect("nobody panics with it");
        let (caught, late) =
            news.wait_timeout_while(caught, PATIENCE, |caught| caught.count == 0).expect("nobody panics");
        assert!(!late.timed_out() && caught.count > 0, "nothing came to the gate");
    }

    /// Lets go what was caught, and whatever comes.
    pub(crate) fn let_go(&self) {
        self.0.0.lock().expect("nobody panics with it").is_let_go = true;
        self.0.1.notify_all();
    }

    /// Holds the caller back.
    fn pass(&self) {
        let (caught, news) = &*self.0;
        let mut caught = caught.lock().expect("nobody panics with it");
        if caught.is_let_go {
            return;
        }
        caught.count += 1;
        news.notify_all();
        drop(news.wait_while(caught, |caught| !caught.is_let_go).expect("nobody panics with it"));
    }
}

/// A gate. Its threads end with the process of the tests.
pub(crate) struct Gate {
    address: SocketAddr,
    rules: Arc<Rules>,
}

impl Gate {
    /// A gate in front of a server.
    pub(crate) fn to(server: &str) -> Self {
        Self::changing(server, |_, _| {})
    }

    /// The same that changes answers.
    pub(crate) fn changing(server: &str, change: impl Fn(&str, &mut Value) + Send + Sync + 'static) -> Self {
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

    /// Holds back whatever is sent to a path with this in it, in a text with these words.
    pub(crate) fn hold(&self, side: Side, path: &str, words: &str) -> Hold {
        let hold = Hold::default();
        let rule = (side, path.to_owned(), words.to_owned(), hold.clone());
        self.rules.holds.lock().expect("nobody panics with it").push(rule);
        hold
    }

    /// Lets everything go.
    pub(crate) fn open(&self) {
        for (.., hold) in self.rules.holds.lock().expect("nobody panics with it").drain(..) {
            hold.let_go();
        }
    }

    /// Holds back the word that a task is in this stage.
    pub(crate) fn hold_stage(&self, side: Side, stage: &str) -> Hold {
        self.hold(side, "/stage", &format!("\"stage\":\"{stage}\""))
    }
}

impl Rules {
    fn hold_back(&self, side: Side, message: &Message) {
        let text = String::from_utf8_lossy(&message.body);
        let fits = |(at, path, words, _): &&(Side, String, String, Hold)| {
            *at == side && message.path.contains(path) && text.contains(words)
        };
        let holds = self.holds.lock().expect("nobody panics with it");
        let found: Vec<Hold> = holds.iter().filter(fits).map(|(.., hold)| hold.clone()).collect();
        drop(holds);
        for hold in found {
            hold.pass();
        }
    }
}

/// A question, or the answer to it: its first line, the headers that are passed on, and the body.
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
        // An answer without a body has no length either.
        let is_bare = self.first.contains(" 204 ");
        let length = if is_bare { String::new() } else { format!("content-length: {}\r\n", self.body.len()) };
        let head = format!("{}\r\n{}{more}{length}\r\n", self.first, self.headers);
        to.write_all(&[head.as_bytes(), &self.body].concat())
    }
}

/// Passes on what comes over one connection, question by question.
fn serve(client: &TcpStream, upstream: SocketAddr, rules: &Rules) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client.try_clone()?);
    while let Some(question) = Message::read(&mut from)? {
        rules.hold_back(Side::Question, &question);
        let server = TcpStream::connect(upstream)?;
        server.set_read_timeout(Some(PATIENCE))?;
        question.write(&server, "connection: close\r\n")?;
        let Some(mut answer) = Message::read(&mut BufReader::new(server))? else { return Ok(()) };
        if let Ok(mut value) = serde_json::from_slice(&answer.body) {
            (rules.change)(&question.path, &mut value);
            answer.body = value.to_string().into_bytes();
        }
        rules.hold_back(Side::Answer, &question);
        answer.write(client, "")?;
    }
    Ok(())
}
