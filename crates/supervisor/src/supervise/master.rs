//! Whom a supervisor answers to: orders come from there, and what happens is told there.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::io::{Errno, read};

use crate::moment::Moment;
use crate::order::Order;
use crate::report::Report;

/// How much is read at once.
const PORTION_BYTES: usize = 16 * 1024;

/// A worker at the other end of two pipes, or the directory of a task. Nothing here ever blocks for long.
pub(super) trait Master {
    /// The orders that have come in since the last call; signs of contact are noted there.
    fn hear(&mut self) -> Vec<Order>;

    /// Puts a report on its way.
    fn report(&mut self, report: &Report);

    /// Sends what can be sent.
    fn flush(&mut self);

    /// Whether there is room for more output of the command.
    fn has_room(&self) -> bool;

    /// Whether contact is lost, so that the command must die.
    fn is_lost(&self, now: Moment) -> bool;

    /// The next moment at which there may be something to hear, or contact is lost, without a word from outside.
    fn next_moment(&self) -> Moment;

    /// What to wait for.
    fn poll_fds(&self) -> Vec<PollFd<'_>>;

    /// Whether the result of waiting on [`Self::poll_fds`] says that nobody listens any more.
    fn is_closed(fds: &[PollFd<'_>]) -> bool;

    /// Notes that nobody listens any more.
    fn note_closed(&mut self);
}

/// Lines that come in.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) input: OwnedFd,
    /// What came in and was not yet taken.
    bytes: Vec<u8>,
    /// How far `bytes` is known to hold no line end.
    searched: usize,
}

impl Incoming {
    pub(super) fn new(input: OwnedFd) -> Self {
        Self { input, bytes: Vec::new(), searched: 0 }
    }

    /// How much has come in and was not yet taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reads a portion; false at the end.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
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

    /// The next whole line.
    pub(super) fn take_line(&mut self) -> Option<Vec<u8>> {
        let Some(found) = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        Some(self.take(self.searched + found + 1))
    }

    /// The next bytes, of which there are so many.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(count);
        self.searched = 0;
        std::mem::replace(&mut self.bytes, rest)
    }
}
