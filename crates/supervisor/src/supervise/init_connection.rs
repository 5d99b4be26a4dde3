//! The supervisor's connection to the init process of a command's PID namespace.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};

use crate::launch::STOP;
use crate::report::End;

/// Socket to init: stop messages out, the end of the command in.
#[derive(Debug)]
pub(super) struct InitConnection {
    /// `None` after init has ended, with all processes of its namespace.
    socket: Option<UnixStream>,
    bytes: Vec<u8>,
}

impl InitConnection {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some(socket), bytes: Vec::new() })
    }

    /// Reads what init has sent.
    pub(super) fn read(&mut self) {
        let Some(socket) = &mut self.socket else { return };
        match socket.read_to_end(&mut self.bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.socket = None,
        }
    }

    /// The end of the command's main process, once init has reported it.
    pub(super) fn end(&self) -> Option<End> {
        serde_json::from_slice(self.bytes.strip_suffix(b"\n")?).ok()
    }

    /// Whether a process of the namespace is alive.
    pub(super) fn is_alive(&self) -> bool {
        self.socket.is_some()
    }

    /// Requests a SIGTERM to the process group of the command.
    pub(super) fn stop(&mut self) {
        if let Some(socket) = &mut self.socket {
            // A full socket already holds such a request.
            let _ = socket.write(&[STOP]);
        }
    }

    /// Descriptor to poll, unless init has ended.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.socket.as_ref().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
    }
}
