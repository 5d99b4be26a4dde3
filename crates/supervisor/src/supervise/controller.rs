//! The controller of a supervisor: it sends control messages and receives reports.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::io::Errno;

use crate::boot_instant::BootInstant;
use crate::protocol::ControlMessage;
use crate::report::Report;

const READ_BYTES: usize = 16 * 1024;

/// A worker at the other end of two pipes, or the directory of a task. No method blocks for long.
pub(super) trait Controller {
    /// Returns the messages received since the last call. The implementation applies contact messages itself.
    fn receive(&mut self) -> Vec<ControlMessage>;

    fn report(&mut self, report: &Report);

    /// Sends queued reports as far as possible without blocking.
    fn flush(&mut self);

    /// Whether the queue has room for more output of the command.
    fn has_room(&self) -> bool;

    /// Whether contact is lost, so that the command must be killed.
    fn is_lost(&self, now: BootInstant) -> bool;

    /// Next time at which [`Self::receive`] or [`Self::is_lost`] may change without outside input.
    fn next_deadline(&self) -> BootInstant;

    fn poll_fds(&self) -> Vec<PollFd<'_>>;

    /// Whether the poll result of [`Self::poll_fds`] means that the other end was closed.
    fn is_closed(fds: &[PollFd<'_>]) -> bool;

    /// Records that the other end was closed.
    fn mark_closed(&mut self);
}

/// Reads lines from a descriptor.
#[derive(Debug)]
pub(super) struct LineReader {
    pub(super) input: OwnedFd,
    /// Bytes that were read and not yet taken.
    bytes: Vec<u8>,
    /// Prefix of `bytes` that is known to contain no line end.
    searched: usize,
}

impl LineReader {
    pub(super) fn new(input: OwnedFd) -> Self {
        Self { input, bytes: Vec::new(), searched: 0 }
    }

    /// Number of bytes that were read and not yet taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reads once; returns false at end-of-file.
    pub(super) fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ_BYTES];
        loop {
            match rustix::io::read(&self.input, &mut buffer) {
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    return Ok(count > 0);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next complete line, including its line end.
    pub(super) fn take_line(&mut self) -> Option<Vec<u8>> {
        let Some(found) = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        Some(self.take(self.searched + found + 1))
    }

    /// Takes the next `count` bytes, which must have been read.
    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(count);
        self.searched = 0;
        std::mem::replace(&mut self.bytes, rest)
    }
}
