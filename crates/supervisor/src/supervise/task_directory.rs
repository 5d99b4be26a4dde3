//! The directory of a task as the controller of a supervisor: a named pipe for control messages, and a log file.
//!
//! The process that started the command may die and be replaced. The supervisor holds both ends of the pipe open,
//! so it never reads end-of-file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::io::Errno;

use super::controller::{Controller, LineReader};
use crate::boot_instant::BootInstant;
use crate::mask::Mask;
use crate::protocol::ControlMessage;
use crate::record::{CONTROL, DetachedSpec, LOG};
use crate::report::{Part, Report, Stream};

/// Longer lines in the pipe are discarded.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The task directory, which is the current directory of this process.
pub(super) struct TaskDirectory {
    control: LineReader,
    log: Log,
    masks: [Mask; 2],
    spec: DetachedSpec,
    contact: BootInstant,
    times_out_at: Option<BootInstant>,
    /// Whether the stop at the timeout was issued.
    pub(super) timed_out: bool,
    /// Whether a stop or kill message was received.
    pub(super) stopped: bool,
}

impl TaskDirectory {
    /// Opens the pipe for control messages, and the log.
    pub(super) fn open(spec: DetachedSpec, mask: &Mask, contact: BootInstant) -> io::Result<Self> {
        match mkfifoat(CWD, CONTROL, Mode::RUSR | Mode::WUSR) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let control: OwnedFd = open(CONTROL, flags, Mode::empty())?;
        let log = Log::open(spec.log_bytes_max)?;
        let now = BootInstant::now();
        Ok(Self {
            control: LineReader::new(control),
            log,
            masks: [mask.clone(), mask.clone()],
            contact: contact.min(now),
            times_out_at: spec.timeout.map(|timeout| now.after(timeout)),
            spec,
            timed_out: false,
            stopped: false,
        })
    }

    /// Whether contact was lost before the start.
    pub(super) fn is_expired(&self) -> bool {
        self.is_lost(BootInstant::now())
    }

    fn contact_ends(&self) -> Option<BootInstant> {
        self.spec.contact_max.map(|contact_max| self.contact.after(contact_max))
    }

    fn apply(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::Contact { at } => self.contact = self.contact.max(at.min(BootInstant::now())),
            ControlMessage::Stop { .. } | ControlMessage::Kill => self.stopped = true,
        }
    }
}

impl Controller for TaskDirectory {
    fn receive(&mut self) -> Vec<ControlMessage> {
        // A failed read is repeated in the next round; the pipe never reaches its end.
        while self.control.len() < MESSAGE_BYTES_MAX && matches!(self.control.read(), Ok(true)) {}
        let mut messages = Vec::new();
        while let Some(line) = self.control.take_line() {
            // An incomplete or invalid line is ignored: any process with access to the directory can write here.
            if let Ok(message) = serde_json::from_slice(&line) {
                self.apply(message);
                messages.push(message);
            }
        }
        if self.control.len() >= MESSAGE_BYTES_MAX {
            self.control.take(self.control.len());
        }
        if !self.timed_out && self.times_out_at.is_some_and(|times_out_at| BootInstant::now() >= times_out_at)
        {
            self.timed_out = true;
            messages.push(ControlMessage::Stop { grace: self.spec.grace });
        }
        messages
    }

    fn report(&mut self, report: &Report) {
        match report {
            Report::Output { stream, text, part } => {
                let index = usize::from(*stream == Stream::Stderr);
                let text = self.masks[index].pass(text.clone(), *part);
                self.log.add(*stream, &text, *part);
            }
            // These are stored as records of their own.
            Report::Started { .. } | Report::Exited(_) => {}
        }
    }

    fn flush(&mut self) {
        self.log.write();
    }

    fn has_room(&self) -> bool {
        true
    }

    fn is_lost(&self, now: BootInstant) -> bool {
        self.contact_ends().is_some_and(|ends| now >= ends)
    }

    fn next_deadline(&self) -> BootInstant {
        let never = BootInstant::now().after(std::time::Duration::MAX);
        let timeout = self.times_out_at.filter(|_| !self.timed_out);
        [self.contact_ends(), timeout].into_iter().flatten().fold(never, BootInstant::min)
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        vec![PollFd::new(&self.control.input, PollFlags::IN)]
    }

    fn is_closed(_: &[PollFd<'_>]) -> bool {
        false
    }

    fn mark_closed(&mut self) {}
}

/// Log file of the command: each line holds a letter for the stream, a space and the text.
///
/// `o` and `e` mark a line; `O` and `E` a piece of a line, which the next line of the same stream continues.
struct Log {
    file: File,
    buffer: Vec<u8>,
    bytes_left: u64,
    bytes_max: u64,
    is_full: bool,
}

impl Log {
    fn open(bytes_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(LOG)?;
        Ok(Self { file, buffer: Vec::new(), bytes_left: bytes_max, bytes_max, is_full: false })
    }

    fn add(&mut self, stream: Stream, text: &str, part: Part) {
        if self.is_full {
            return;
        }
        let bytes = text.len() as u64 + 3;
        if bytes > self.bytes_left {
            self.is_full = true;
            let notice = format!("e (output truncated after {} bytes)\n", self.bytes_max);
            self.buffer.extend_from_slice(notice.as_bytes());
            return;
        }
        self.bytes_left -= bytes;
        let mark = match (stream, part) {
            (Stream::Stdout, Part::Whole | Part::Last) => b'o',
            (Stream::Stdout, Part::Piece) => b'O',
            (Stream::Stderr, Part::Whole | Part::Last) => b'e',
            (Stream::Stderr, Part::Piece) => b'E',
        };
        self.buffer.extend_from_slice(&[mark, b' ']);
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(b'\n');
    }

    /// Drops the output if it cannot be written: a full disk must not stop the command.
    fn write(&mut self) {
        if !self.buffer.is_empty() {
            let _ = self.file.write_all(&self.buffer);
            self.buffer.clear();
        }
    }
}
