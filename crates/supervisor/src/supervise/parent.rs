//! The supervisor's line to the worker: orders come in, reports go out, and neither ever blocks.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, write};

use super::master::{Incoming, Master};
use crate::moment::Moment;
use crate::order::{Header, Order};
use crate::report::Report;

/// Once this much waits to be read by the worker, the command's output is left in its pipes.
const WAITING_BYTES_MAX: usize = 64 * 1024;

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
        let mut incoming = Incoming::new(input);
        let line = loop {
            if let Some(line) = incoming.take_line() {
                break line;
            }
            if !incoming.receive()? {
                return Ok(None);
            }
        };
        let header: Header = serde_json::from_slice(&line)?;
        while incoming.len() < header.stdin_bytes {
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

    /// Whether a report still waits to be read.
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether the worker died or closed its end.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// When contact is lost unless there is another sign of it.
    pub(super) fn contact_ends(&self) -> Moment {
        self.contact.after(self.contact_max)
    }

    fn note(&mut self, order: Order) {
        match order {
            // Contact is never taken back, nor taken on credit.
            Order::Contact { at } => self.contact = self.contact.max(at.min(Moment::now())),
            Order::Stop { .. } | Order::Kill => {}
        }
    }
}

impl Master for Parent {
    fn hear(&mut self) -> Vec<Order> {
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

    fn report(&mut self, report: &Report) {
        // A report consists of texts and numbers, which always become JSON.
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
        // What was sent is let go at once: a worker that never quite keeps up would otherwise fill our memory.
        self.outgoing.drain(..written);
    }

    fn has_room(&self) -> bool {
        self.outgoing.len() < WAITING_BYTES_MAX
    }

    fn is_lost(&self, now: Moment) -> bool {
        self.is_gone || now >= self.contact_ends()
    }

    fn next_moment(&self) -> Moment {
        self.contact_ends()
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        // Even where nothing is asked for, the system tells when the worker closed its end.
        let output = if self.has_outgoing() { PollFlags::OUT } else { PollFlags::empty() };
        vec![PollFd::new(&self.incoming.input, PollFlags::IN), PollFd::new(&self.output, output)]
    }

    fn is_closed(fds: &[PollFd<'_>]) -> bool {
        fds.get(1).is_some_and(|output| output.revents().contains(PollFlags::ERR))
    }

    fn note_closed(&mut self) {
        self.is_gone = true;
    }
}
