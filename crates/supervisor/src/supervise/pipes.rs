//! The supervisor's ends of the command's three pipes, none of which ever blocks.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, read, write};

use super::master::Master;
use crate::lines::Lines;
use crate::report::{Report, Stream};

/// How much output is read at once: the most that is held in memory besides what waits for the worker.
const PORTION_BYTES: usize = 16 * 1024;

/// The writing end of the command's standard input.
#[derive(Debug)]
pub(super) struct Feed {
    /// Closed as soon as everything is written, or the command no longer reads.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    written: usize,
}

impl Feed {
    pub(super) fn new(pipe: OwnedFd, bytes: Vec<u8>) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), bytes, written: 0 })
    }

    /// Writes what the command is ready to take.
    pub(super) fn write(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        while self.written < self.bytes.len() {
            match write(pipe, &self.bytes[self.written..]) {
                Ok(written) => self.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The command does not want the rest, which is its right.
                Err(_) => break,
            }
        }
        self.pipe = None;
        self.bytes = Vec::new();
        self.written = 0;
    }

    /// What to wait for, if anything.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT))
    }
}

/// The reading end of one output of the command.
#[derive(Debug)]
pub(super) struct Output {
    stream: Stream,
    /// Closed when no process can write to it any more.
    pipe: Option<OwnedFd>,
    lines: Lines,
}

impl Output {
    pub(super) fn new(stream: Stream, pipe: OwnedFd, line_bytes_max: usize) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { stream, pipe: Some(pipe), lines: Lines::new(line_bytes_max) })
    }

    /// Reports one portion, if there is one.
    pub(super) fn read(&mut self, master: &mut impl Master) {
        self.read_portion(master);
    }

    /// Reports one portion, or the end where nothing is left to read: no process of the command lives any more.
    pub(super) fn read_rest(&mut self, master: &mut impl Master) {
        if !self.read_portion(master) {
            self.close(master);
        }
    }

    /// Whether everything was read.
    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// What to wait for, if anything.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Whether there was something to read.
    fn read_portion(&mut self, master: &mut impl Master) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut portion = [0; PORTION_BYTES];
        match read(pipe, &mut portion) {
            Ok(count) if count > 0 => {
                let stream = self.stream;
                self.lines.push(&portion[..count], &mut |text, part| {
                    master.report(&Report::Output { stream, text, part });
                });
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.close(master);
                false
            }
        }
    }

    fn close(&mut self, master: &mut impl Master) {
        if self.pipe.take().is_some() {
            let stream = self.stream;
            self.lines.finish(&mut |text, part| master.report(&Report::Output { stream, text, part }));
        }
    }
}
