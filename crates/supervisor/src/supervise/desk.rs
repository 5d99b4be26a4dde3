//! The directory of a task as a supervisor's master: orders come through a pipe with a name, output goes to a log.
//!
//! Nobody has to be there. Whoever started the command may die and come back: the pipe is open at both ends
//! here, so it never ends, and the log is read by whoever is interested.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::io::Errno;

use super::master::{Incoming, Master};
use crate::mask::Mask;
use crate::moment::Moment;
use crate::order::Order;
use crate::record::{CONTROL, LOG, LastingSpec};
use crate::report::{Part, Report, Stream};

/// Orders longer than this make no sense.
const ORDER_BYTES_MAX: usize = 64 * 1024;

/// The directory of a task, which is the current one.
pub(super) struct Desk {
    control: Incoming,
    log: Log,
    masks: [Mask; 2],
    spec: LastingSpec,
    contact: Moment,
    /// When its time is over.
    ends_at: Option<Moment>,
    /// Whether that was told.
    pub(super) timed_out: bool,
    /// Whether somebody asked for the end.
    pub(super) stopped: bool,
}

impl Desk {
    /// Opens the pipe for orders, and the log.
    pub(super) fn open(spec: LastingSpec, mask: &Mask, contact: Moment) -> io::Result<Self> {
        match mkfifoat(CWD, CONTROL, Mode::RUSR | Mode::WUSR) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let control: OwnedFd = open(CONTROL, flags, Mode::empty())?;
        let log = Log::open(spec.log_bytes_max)?;
        let now = Moment::now();
        Ok(Self {
            control: Incoming::new(control),
            log,
            masks: [mask.clone(), mask.clone()],
            contact: contact.min(now),
            ends_at: spec.timeout.map(|timeout| now.after(timeout)),
            spec,
            timed_out: false,
            stopped: false,
        })
    }

    /// Whether contact was lost before anything began.
    pub(super) fn is_late(&self) -> bool {
        self.is_lost(Moment::now())
    }

    fn contact_ends(&self) -> Option<Moment> {
        self.spec.contact_max.map(|lasts| self.contact.after(lasts))
    }

    fn note(&mut self, order: Order) {
        match order {
            Order::Contact { at } => self.contact = self.contact.max(at.min(Moment::now())),
            Order::Stop { .. } | Order::Kill => self.stopped = true,
        }
    }
}

impl Master for Desk {
    fn hear(&mut self) -> Vec<Order> {
        // What cannot be read now is read the next time; the pipe has no end.
        while self.control.len() < ORDER_BYTES_MAX && matches!(self.control.receive(), Ok(true)) {}
        let mut orders = Vec::new();
        while let Some(line) = self.control.take_line() {
            // A torn or strange line is nobody's order, and no reason to end anything.
            if let Ok(order) = serde_json::from_slice(&line) {
                self.note(order);
                orders.push(order);
            }
        }
        if self.control.len() >= ORDER_BYTES_MAX {
            self.control.take(self.control.len());
        }
        if !self.timed_out && self.ends_at.is_some_and(|ends_at| Moment::now() >= ends_at) {
            self.timed_out = true;
            orders.push(Order::Stop { grace: self.spec.grace });
        }
        orders
    }

    fn report(&mut self, report: &Report) {
        match report {
            Report::Output { stream, text, part } => {
                let place = usize::from(*stream == Stream::Stderr);
                let text = self.masks[place].pass(text.clone(), *part);
                self.log.add(*stream, &text, *part);
            }
            // These are records of their own.
            Report::Started { .. } | Report::Exited(_) => {}
        }
    }

    fn flush(&mut self) {
        self.log.write();
    }

    fn has_room(&self) -> bool {
        true
    }

    fn is_lost(&self, now: Moment) -> bool {
        self.contact_ends().is_some_and(|ends| now >= ends)
    }

    fn next_moment(&self) -> Moment {
        let never = Moment::now().after(std::time::Duration::MAX);
        let time = self.ends_at.filter(|_| !self.timed_out);
        [self.contact_ends(), time].into_iter().flatten().fold(never, Moment::min)
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        vec![PollFd::new(&self.control.input, PollFlags::IN)]
    }

    fn is_closed(_: &[PollFd<'_>]) -> bool {
        false
    }

    fn note_closed(&mut self) {}
}

/// What the command wrote: a mark for the stream, a space, the text and a line end.
///
/// `o` and `e` mark a line; `O` and `E` a piece of one, which the next line of the same stream continues.
struct Log {
    file: File,
    waiting: Vec<u8>,
    left: u64,
    bytes_max: u64,
    is_full: bool,
}

impl Log {
    fn open(bytes_max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(LOG)?;
        Ok(Self { file, waiting: Vec::new(), left: bytes_max, bytes_max, is_full: false })
    }

    fn add(&mut self, stream: Stream, text: &str, part: Part) {
        if self.is_full {
            return;
        }
        let bytes = text.len() as u64 + 3;
        if bytes > self.left {
            self.is_full = true;
            let rest = format!("e (the rest is left out: more than {} bytes of output)\n", self.bytes_max);
            self.waiting.extend_from_slice(rest.as_bytes());
            return;
        }
        self.left -= bytes;
        let mark = match (stream, part) {
            (Stream::Stdout, Part::Whole | Part::Last) => b'o',
            (Stream::Stdout, Part::Piece) => b'O',
            (Stream::Stderr, Part::Whole | Part::Last) => b'e',
            (Stream::Stderr, Part::Piece) => b'E',
        };
        self.waiting.extend_from_slice(&[mark, b' ']);
        self.waiting.extend_from_slice(text.as_bytes());
        self.waiting.push(b'\n');
    }

    /// A disk that takes no more must not stop the command: what it said is lost then.
    fn write(&mut self) {
        if !self.waiting.is_empty() {
            let _ = self.file.write_all(&self.waiting);
            self.waiting.clear();
        }
    }
}
