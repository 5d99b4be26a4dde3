//! The supervisor's line to the worker: orders come in, reports go out, and neither ever blocks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, read, write};

use crate::moment::Moment;
use crate::order::{Header, Order};
use crate::report::Report;

/// Once this much waits to be read by the worker, the command's output is left in its pipes.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// How much is read at once.
const PORTION_BYTES: usize = 16 * 1024;

/// The worker, as the supervisor sees it.
#[derive(Debug)]
pub(super) struct Parent {
    incoming: Incoming,
    output: OwnedFd,
    /// What is to go out.
    outgoing: Vec<u8>,
    /// The last moment at which the worker is known to have held its lease.
    contact: Moment,
    /// How long that lasts.
    contact_max: Duration,
    /// Whether the worker died, or closed its end.
    is_gone: bool,
}

impl Parent {
    /// Takes over the standard input and output, and waits to be told what to run.
    ///
    /// Also gives what the command shall find on its standard input; `None` if the worker died before.
    pub(super) fn meet() -> io::Result<Option<(Self, Header, Vec<u8>)>> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        let mut incoming = Incoming { input, bytes: Vec::new(), searched: 0 };
        let line = loop {
            if let Some(line) = incoming.take_line() {
                break line;
            }
            if !incoming.receive()? {
                return Ok(None);
            }
        };
        let header: Header = serde_json::from_slice(&line)?;
        while incoming.bytes.len() < header.stdin_bytes {
            if !incoming.receive()? {
                return Ok(None);
            }
        }
        let stdin = incoming.take(header.stdin_bytes);
        // The pipes are ours alone: the worker made them for us and keeps only their other ends.
        ioctl_fionbio(&incoming.input, true)?;
        ioctl_fionbio(&output, true)?;
        let parent = Self {
            incoming,
            output,
            outgoing: Vec::new(),
            contact: header.contact.min(Moment::now()),
            contact_max: header.contact_max,
            is_gone: false,
        };
        Ok(Some((parent, header, stdin)))
    }

    /// The orders that have come in since the last call; signs of contact are noted here.
    pub(super) fn hear(&mut self) -> Vec<Order> {
        loop {
            match self.incoming.receive() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(false) | Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
        }
        let mut orders = Vec::new();
        while let Some(line) = self.incoming.take_line() {
            match serde_json::from_slice(&line) {
                Ok(order) => {
                    self.note(order);
                    orders.push(order);
                }
                // Whoever says what makes no sense is not the worker that may keep the command alive.
                Err(_) => self.is_gone = true,
            }
        }
        orders
    }

    /// Puts a report on its way.
    pub(super) fn report(&mut self, report: &Report) {
        // A report consists of texts and numbers, which always become JSON.
        if serde_json::to_writer(&mut self.outgoing, report).is_ok() {
            self.outgoing.push(b'\n');
        } else {
            self.is_gone = true;
        }
    }

    /// Sends what the worker is ready to take.
    pub(super) fn flush(&mut self) {
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
        // What was sent is let go at once: a worker that never quite keeps up would otherwise fill our memory.
        self.outgoing.drain(..written);
    }

    /// Whether a report still waits to be read.
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether there is room for more output of the command.
    pub(super) fn has_room(&self) -> bool {
        self.outgoing.len() < WAITING_BYTES_MAX
    }

    /// Whether the worker died or closed its end.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether the worker is gone, or gave no sign of contact for too long.
    pub(super) fn is_lost(&self, now: Moment) -> bool {
        self.is_gone || now >= self.contact_ends()
    }

    /// When contact is lost unless there is another sign of it.
    pub(super) fn contact_ends(&self) -> Moment {
        self.contact.after(self.contact_max)
    }

    /// What to wait for: orders, and room for reports.
    pub(super) fn poll_fds(&self) -> [PollFd<'_>; 2] {
        // Even where nothing is asked for, the system tells when the worker closed its end.
        let output = if self.has_outgoing() { PollFlags::OUT } else { PollFlags::empty() };
        [PollFd::new(&self.incoming.input, PollFlags::IN), PollFd::new(&self.output, output)]
    }

    /// Whether the result of waiting on [`Self::poll_fds`] says that the worker no longer reads.
    pub(super) fn is_closed(fds: &[PollFd<'_>]) -> bool {
        fds.get(1).is_some_and(|output| output.revents().contains(PollFlags::ERR))
    }

    /// Notes that the worker no longer reads.
    pub(super) fn note_closed(&mut self) {
        self.is_gone = true;
    }

    fn note(&mut self, order: Order) {
        match order {
            // Contact is never taken back, nor taken on credit.
            Order::Contact { at } => self.contact = self.contact.max(at.min(Moment::now())),
            Order::Stop { .. } | Order::Kill => {}
        }
    }
}

/// What comes in from the worker.
#[derive(Debug)]
struct Incoming {
    input: OwnedFd,
    /// What came in and was not yet taken.
    bytes: Vec<u8>,
    /// How far `bytes` is known to hold no line end.
    searched: usize,
}

impl Incoming {
    /// Reads a portion; false at the end.
    fn receive(&mut self) -> io::Result<bool> {
        let mut portion = [0; PORTION_BYTES];
        loop {
            match read(&self.input, &mut portion) {
                Ok(count) => {
                    self.bytes.extend_from_slice(&portion[..count]);
                    return Ok(count > 0);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let Some(found) = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        Some(self.take(self.searched + found + 1))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(count);
        self.searched = 0;
        std::mem::replace(&mut self.bytes, rest)
    }
}
