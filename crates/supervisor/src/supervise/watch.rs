//! The main part: the command runs until something decides that it is over.
//!
//! Each round of the loop carries what there is to carry, then asks for a verdict. Whatever the verdict, all
//! processes of the command are killed before it is told to anybody.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitStatus};

use super::family::Family;
use super::master::Master;
use super::pipes::{Feed, Output};
use super::start::{Answer, Launched, Started};
use super::{Failure, sleep};
use crate::moment::Moment;
use crate::order::Order;
use crate::report::{End, Report};

/// How long the pipes may stay open after the main process ended: background processes may hold them.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// How often to look whether the rest of a command that was asked to stop is gone.
const ORPHAN_TICK: Duration = Duration::from_millis(20);

/// Why the command is over.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Its main process ended, and its output was given time to end too.
    Ended,
    /// The worker wants it dead, or the grace of a stop is over.
    Condemned,
    /// The worker is gone, or silent for too long.
    LostContact,
    /// It could not be executed, for this reason.
    NotStarted(String),
}

/// A command while it runs.
struct Watch<'a, M> {
    master: &'a mut M,
    pid: i32,
    family: Family,
    leader: OwnedFd,
    answer: Answer,
    feed: Feed,
    outputs: [Output; 2],
    launched: Option<Launched>,
    /// When the grace of a stop is over, if one was asked for.
    stop_by: Option<Moment>,
    is_condemned: bool,
    /// When the main process was seen to have ended.
    ended_at: Option<Moment>,
}

/// Carries input, output and orders until the command is over and dead.
pub(super) fn watch<M: Master>(master: &mut M, started: Started) -> Result<(End, [Output; 2]), Failure> {
    let Started { pid, family, leader, answer, feed, outputs } = started;
    let watch = Watch {
        master,
        pid,
        family,
        leader,
        answer,
        feed,
        outputs,
        launched: None,
        stop_by: None,
        is_condemned: false,
        ended_at: None,
    };
    watch.until_over()
}

impl<M: Master> Watch<'_, M> {
    fn until_over(mut self) -> Result<(End, [Output; 2]), Failure> {
        let verdict = self.until_verdict();
        let has_ended = self.ended_at.is_some();
        let status = self.family.kill();
        let end = end(verdict?, has_ended, self.launched.as_ref(), status)?;
        Ok((end, self.outputs))
    }

    fn until_verdict(&mut self) -> Result<Verdict, Failure> {
        loop {
            let now = Moment::now();
            self.obey(now);
            self.carry();
            if let Some(verdict) = self.verdict(now) {
                return Ok(verdict);
            }
            self.wait(now)?;
        }
    }

    fn obey(&mut self, now: Moment) {
        for order in self.master.hear() {
            match order {
                // The master keeps the time of contact itself.
                Order::Contact { .. } => {}
                // What the main process left behind has its own, shorter time, which a stop must not prolong.
                Order::Stop { .. } if self.ended_at.is_some() => {}
                Order::Stop { grace } => {
                    let stop_by = now.after(grace);
                    self.stop_by = Some(self.stop_by.map_or(stop_by, |earlier| earlier.min(stop_by)));
                    self.family.signal(Signal::TERM);
                }
                Order::Kill => self.is_condemned = true,
            }
        }
    }

    fn carry(&mut self) {
        if let Some(launched) = self.answer.read() {
            if launched == Launched::Executed {
                self.master.report(&Report::Started { pid: self.pid });
            }
            self.launched = Some(launched);
        }
        self.feed.write();
        if self.takes_output() {
            for output in &mut self.outputs {
                output.read(self.master);
            }
        }
        self.master.flush();
        if self.ended_at.is_none() {
            self.family.collect_orphans();
        }
    }

    /// Whether output is wanted: after the report of the start, and while the worker keeps up.
    fn takes_output(&self) -> bool {
        self.answer.is_heard() && self.master.has_room()
    }

    fn verdict(&self, now: Moment) -> Option<Verdict> {
        if self.master.is_lost(now) {
            return Some(Verdict::LostContact);
        }
        if let Some(Launched::Refused(reason)) = &self.launched {
            return Some(Verdict::NotStarted(reason.clone()));
        }
        if self.is_condemned || self.stop_by.is_some_and(|stop_by| now >= stop_by) {
            return Some(Verdict::Condemned);
        }
        let ended_at = self.ended_at?;
        let is_over = if self.stop_by.is_some() {
            // Those of the group that are still at work to end in good order have the same grace.
            !self.family.has_orphans()
        } else {
            now >= ended_at.after(DRAIN_MAX) || self.outputs.iter().all(Output::is_closed)
        };
        is_over.then_some(Verdict::Ended)
    }

    fn wait(&mut self, now: Moment) -> Result<(), Failure> {
        let deadline = self.deadline(now);
        let takes_output = self.takes_output();
        let mut fds: Vec<PollFd<'_>> = self.master.poll_fds();
        let master_fds = fds.len();
        // Once it has ended it would be ready for ever.
        if self.ended_at.is_none() {
            fds.push(PollFd::new(&self.leader, PollFlags::IN));
        }
        fds.extend(self.answer.poll_fd());
        fds.extend(self.feed.poll_fd());
        if takes_output {
            fds.extend(self.outputs.iter().filter_map(Output::poll_fd));
        }
        sleep(&mut fds, now, deadline)?;
        let has_ended = self.ended_at.is_none() && !fds[master_fds].revents().is_empty();
        let is_closed = M::is_closed(&fds[..master_fds]);
        if has_ended {
            self.ended_at = Some(Moment::now());
        }
        if is_closed {
            self.master.note_closed();
        }
        Ok(())
    }

    /// The next moment at which the verdict may change by itself.
    fn deadline(&self, now: Moment) -> Moment {
        let drained = self.ended_at.map(|ended_at| match self.stop_by {
            Some(_) => now.after(ORPHAN_TICK),
            None => ended_at.after(DRAIN_MAX),
        });
        [self.stop_by, drained].into_iter().flatten().fold(self.master.next_moment(), Moment::min)
    }
}

/// What to tell the worker.
fn end(
    verdict: Verdict,
    has_ended: bool,
    launched: Option<&Launched>,
    status: Option<WaitStatus>,
) -> Result<End, Failure> {
    if let Verdict::NotStarted(reason) = verdict {
        return Ok(End::NotStarted { reason });
    }
    let status = status.ok_or(Failure::NoStatus)?;
    if let Some(code) = status.exit_status() {
        if launched == Some(&Launched::Silent) {
            let reason = format!("the launch step ended early, with exit code {code}");
            return Ok(End::NotStarted { reason });
        }
        return Ok(End::Code(code));
    }
    if verdict == Verdict::LostContact && !has_ended {
        return Ok(End::LostContact);
    }
    status.terminating_signal().map(End::Signal).ok_or(Failure::NoStatus)
}
