//! The supervisor's connection to the worker: control messages in, reports out, neither of them blocking.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, write};

use super::controller::{Controller, LineReader};
use crate::boot_instant::BootInstant;
use crate::protocol::{ControlMessage, Header};
use crate::report::Report;

/// If more bytes wait for the worker, the supervisor stops reading the command's output.
const OUTGOING_BYTES_MAX: usize = 64 * 1024;

/// Connection to the worker over the standard input and output.
#[derive(Debug)]
pub(super) struct WorkerConnection {
    incoming: LineReader,
    output: OwnedFd,
    /// Reports that were not written yet.
    outgoing: Vec<u8>,
    /// Last time at which the worker is known to have held its lease.
    contact: BootInstant,
    contact_max: Duration,
    /// Whether the worker died or closed its end.
    is_gone: bool,
}

impl WorkerConnection {
    /// Takes over the standard input and output, and reads the command and its standard input.
    ///
    /// Returns `None` if the worker died before it had sent all of them.
    pub(super) fn open() -> io::Result<Option<(Self, Header, Vec<u8>)>> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        let mut incoming = LineReader::new(input);
        let line = loop {
            if let Some(line) = incoming.take_line() {
                break line;
            }
            if !incoming.read()? {
                return Ok(None);
            }
        };
        let header: Header = serde_json::from_slice(&line)?;
        while incoming.len() < header.stdin_bytes {
            if !incoming.read()? {
                return Ok(None);
            }
        }
        let stdin = incoming.take(header.stdin_bytes);
        // No other process shares these ends of the pipes, so the flag affects this process only.
        ioctl_fionbio(&incoming.input, true)?;
        ioctl_fionbio(&output, true)?;
        let connection = Self {
            incoming,
            output,
            outgoing: Vec::new(),
            contact: header.contact.min(BootInstant::now()),
            contact_max: header.contact_max,
            is_gone: false,
        };
        Ok(Some((connection, header, stdin)))
    }

    /// Whether a report was not written yet.
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Time at which contact is lost unless it is confirmed again.
    pub(super) fn contact_ends(&self) -> BootInstant {
        self.contact.after(self.contact_max)
    }

    fn apply(&mut self, message: ControlMessage) {
        match message {
            // The time of contact never moves back, and never into the future.
            ControlMessage::Contact { at } => self.contact = self.contact.max(at.min(BootInstant::now())),
            ControlMessage::Stop { .. } | ControlMessage::Kill => {}
        }
    }
}

impl Controller for WorkerConnection {
    fn receive(&mut self) -> Vec<ControlMessage> {
        loop {
            match self.incoming.read() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(false) | Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        let mut messages = Vec::new();
        while let Some(line) = self.incoming.take_line() {
            match serde_json::from_slice(&line) {
                Ok(message) => {
                    self.apply(message);
                    messages.push(message);
                }
                // A process that sends invalid messages is not the worker that may keep the command alive.
                Err(_) => self.is_gone = true,
            }
        }
        messages
    }

    fn report(&mut self, report: &Report) {
        // Reports hold only texts and numbers, so serialization does not fail.
        if serde_json::to_writer(&mut self.outgoing, report).is_ok() {
            self.outgoing.push(b'\n');
        } else {
            self.is_gone = true;
        }
    }

    fn flush(&mut self) {
        let mut written = 0;
        while written < self.outgoing.len() {
            match write(&self.output, &self.outgoing[written..]) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        // Removed at once: with a worker that is always a little too slow, the buffer would grow without limit.
        self.outgoing.drain(..written);
    }

    fn has_room(&self) -> bool {
        self.outgoing.len() < OUTGOING_BYTES_MAX
    }

    fn is_lost(&self, now: BootInstant) -> bool {
        self.is_gone || now >= self.contact_ends()
    }

    fn next_deadline(&self) -> BootInstant {
        self.contact_ends()
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        // Without any requested event, `poll` still reports that the worker closed its end.
        let output = if self.has_outgoing() { PollFlags::OUT } else { PollFlags::empty() };
        vec![PollFd::new(&self.incoming.input, PollFlags::IN), PollFd::new(&self.output, output)]
    }

    fn is_closed(fds: &[PollFd<'_>]) -> bool {
        fds.get(1).is_some_and(|output| output.revents().contains(PollFlags::ERR))
    }

    fn mark_closed(&mut self) {
        self.is_gone = true;
    }
}
