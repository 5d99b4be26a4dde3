//! The supervisor's ends of the command's three pipes, all non-blocking.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, ioctl_fionbio, read, write};

use super::controller::Controller;
use crate::lines::Lines;
use crate::report::{Report, Stream};

/// Bytes per read, which bounds the memory for output that is not yet queued for the worker.
const READ_BYTES: usize = 16 * 1024;

/// Writes the command's standard input.
#[derive(Debug)]
pub(super) struct StdinWriter {
    /// `None` after all bytes were written or the command closed its end.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
    written: usize,
}

impl StdinWriter {
    pub(super) fn new(pipe: OwnedFd, bytes: Vec<u8>) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), bytes, written: 0 })
    }

    /// Writes as many bytes as the pipe accepts.
    pub(super) fn write(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        while self.written < self.bytes.len() {
            match write(pipe, &self.bytes[self.written..]) {
                Ok(written) => self.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The command closed its standard input before it had read all of it.
                Err(_) => break,
            }
        }
        self.pipe = None;
        self.bytes = Vec::new();
        self.written = 0;
    }

    /// Descriptor to poll, unless the pipe is closed.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT))
    }
}

/// Reads one output stream of the command.
#[derive(Debug)]
pub(super) struct Output {
    stream: Stream,
    /// `None` after the pipe has reached end-of-file.
    pipe: Option<OwnedFd>,
    lines: Lines,
}

impl Output {
    pub(super) fn new(stream: Stream, pipe: OwnedFd, line_bytes_max: usize) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { stream, pipe: Some(pipe), lines: Lines::new(line_bytes_max) })
    }

    /// Reports the output of one read, if there is any.
    pub(super) fn read(&mut self, controller: &mut impl Controller) {
        self.read_once(controller);
    }

    /// Reports the output of one read, and closes the stream if the pipe is empty.
    ///
    /// Only for a command without live processes, because no more output can follow.
    pub(super) fn read_rest(&mut self, controller: &mut impl Controller) {
        if !self.read_once(controller) {
            self.close(controller);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Descriptor to poll, unless the pipe is closed.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Returns whether there was output to read.
    fn read_once(&mut self, controller: &mut impl Controller) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; READ_BYTES];
        match read(pipe, &mut buffer) {
            Ok(count) if count > 0 => {
                let stream = self.stream;
                self.lines.push(&buffer[..count], &mut |text, part| {
                    controller.report(&Report::Output { stream, text, part });
                });
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.close(controller);
                false
            }
        }
    }

    fn close(&mut self, controller: &mut impl Controller) {
        if self.pipe.take().is_some() {
            let stream = self.stream;
            self.lines.finish(&mut |text, part| controller.report(&Report::Output { stream, text, part }));
        }
    }
}
