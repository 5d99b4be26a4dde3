//! The main phase: monitors the command until there is a reason to end it.
//!
//! Each round of the loop applies control messages, transfers input and output, and checks for a reason to end. All
//! processes of the command are killed before its end is reported.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, WaitStatus};

use super::controller::Controller;
use super::init_connection::InitConnection;
use super::pipes::{Output, StdinWriter};
use super::process_tree::ProcessTree;
use super::start::{LaunchOutcome, LaunchReply, RunningCommand};
use super::{SupervisorError, sleep};
use crate::boot_instant::BootInstant;
use crate::protocol::ControlMessage;
use crate::report::{End, Report};

/// Time limit for open output pipes after the main process ended. Background processes may hold them open.
const OUTPUT_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of the check whether the remaining processes of a stopped command have ended.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Reason to end the command.
#[derive(Debug, PartialEq, Eq)]
enum EndReason {
    /// Its main process ended, and its output was closed or had time to close.
    Exited,
    /// The controller requested a kill, or the grace period of a stop is over.
    Killed,
    /// The worker died, or did not confirm contact in time.
    LostContact,
    NotStarted(String),
}

/// State of the loop while the command runs.
struct Monitor<'a, C> {
    controller: &'a mut C,
    pid: i32,
    processes: ProcessTree,
    pidfd: OwnedFd,
    reply: LaunchReply,
    stdin: StdinWriter,
    outputs: [Output; 2],
    init: Option<InitConnection>,
    launch: Option<LaunchOutcome>,
    /// End of the grace period, if a stop was requested.
    stop_by: Option<BootInstant>,
    kill_requested: bool,
    /// Time at which the end of the main process was observed.
    ended_at: Option<BootInstant>,
}

/// Transfers input, output and control messages until the command and all its processes are dead.
pub(super) fn monitor<C: Controller>(
    controller: &mut C,
    command: RunningCommand,
) -> Result<(End, [Output; 2]), SupervisorError> {
    let RunningCommand { pid, processes, pidfd, reply, stdin, outputs, init } = command;
    let monitor = Monitor {
        controller,
        pid,
        processes,
        pidfd,
        reply,
        stdin,
        outputs,
        init,
        launch: None,
        stop_by: None,
        kill_requested: false,
        ended_at: None,
    };
    monitor.run()
}

impl<C: Controller> Monitor<'_, C> {
    fn run(mut self) -> Result<(End, [Output; 2]), SupervisorError> {
        let reason = self.run_until_reason();
        let has_ended = self.ended_at.is_some();
        let status = self.processes.kill();
        let status = match &mut self.init {
            Some(init) => {
                init.read();
                // Without a report, the command was killed together with init.
                Some(init.end().unwrap_or(End::Signal(Signal::KILL.as_raw())))
            }
            None => status.and_then(end_of_process),
        };
        let end = end(reason?, has_ended, self.launch.as_ref(), status)?;
        Ok((end, self.outputs))
    }

    fn run_until_reason(&mut self) -> Result<EndReason, SupervisorError> {
        loop {
            let now = BootInstant::now();
            self.apply_messages(now);
            self.transfer();
            if let Some(reason) = self.end_reason(now) {
                return Ok(reason);
            }
            self.wait(now)?;
        }
    }

    fn apply_messages(&mut self, now: BootInstant) {
        for message in self.controller.receive() {
            match message {
                // The controller applies the time of contact itself.
                ControlMessage::Contact { .. } => {}
                // After the end of the main process, the time limit of its output applies. A stop must not extend it.
                ControlMessage::Stop { .. } if self.ended_at.is_some() => {}
                ControlMessage::Stop { grace } => {
                    let stop_by = now.after(grace);
                    self.stop_by = Some(self.stop_by.map_or(stop_by, |earlier| earlier.min(stop_by)));
                    match &mut self.init {
                        Some(init) => init.stop(),
                        None => self.processes.signal(Signal::TERM),
                    }
                }
                ControlMessage::Kill => self.kill_requested = true,
            }
        }
    }

    fn transfer(&mut self) {
        if let Some(launch) = self.reply.read() {
            if launch == LaunchOutcome::Executed {
                self.controller.report(&Report::Started { pid: self.pid });
            }
            self.launch = Some(launch);
        }
        self.stdin.write();
        if self.reads_output() {
            for output in &mut self.outputs {
                output.read(self.controller);
            }
        }
        self.controller.flush();
        if let Some(init) = &mut self.init {
            init.read();
            if self.ended_at.is_none() && init.end().is_some() {
                self.ended_at = Some(BootInstant::now());
            }
        }
        if self.ended_at.is_none() {
            self.processes.reap_orphans();
        }
    }

    /// Whether another process of the command than the main one is alive.
    fn has_orphans(&self) -> bool {
        match &self.init {
            Some(init) => init.is_alive(),
            None => self.processes.has_orphans(),
        }
    }

    /// Whether to read output: after the start was reported, and while the controller keeps up.
    fn reads_output(&self) -> bool {
        self.reply.is_complete() && self.controller.has_room()
    }

    fn end_reason(&self, now: BootInstant) -> Option<EndReason> {
        if self.controller.is_lost(now) {
            return Some(EndReason::LostContact);
        }
        if let Some(LaunchOutcome::Refused(reason)) = &self.launch {
            return Some(EndReason::NotStarted(reason.clone()));
        }
        if self.kill_requested || self.stop_by.is_some_and(|stop_by| now >= stop_by) {
            return Some(EndReason::Killed);
        }
        let ended_at = self.ended_at?;
        // Another process than the command may still hold the socket of the reply, which says whether it was executed.
        if !self.reply.is_complete() && now < ended_at.after(OUTPUT_CLOSE_TIMEOUT) {
            return None;
        }
        let is_over = if self.stop_by.is_some() {
            // The other processes of the group have the same grace period for a clean shutdown.
            !self.has_orphans()
        } else {
            now >= ended_at.after(OUTPUT_CLOSE_TIMEOUT) || self.outputs.iter().all(Output::is_closed)
        };
        is_over.then_some(EndReason::Exited)
    }

    fn wait(&mut self, now: BootInstant) -> Result<(), SupervisorError> {
        let deadline = self.deadline(now);
        let reads_output = self.reads_output();
        let mut fds: Vec<PollFd<'_>> = self.controller.poll_fds();
        let controller_fds = fds.len();
        // After the end of the main process it would always be ready.
        if self.ended_at.is_none() {
            fds.push(PollFd::new(&self.pidfd, PollFlags::IN));
        }
        fds.extend(self.reply.poll_fd());
        // After the report of init, the deadlines suffice: its socket stays readable at its end.
        fds.extend(self.init.as_ref().filter(|_| self.ended_at.is_none()).and_then(InitConnection::poll_fd));
        fds.extend(self.stdin.poll_fd());
        if reads_output {
            fds.extend(self.outputs.iter().filter_map(Output::poll_fd));
        }
        sleep(&mut fds, now, deadline)?;
        let has_ended = self.ended_at.is_none() && !fds[controller_fds].revents().is_empty();
        let is_closed = C::is_closed(&fds[..controller_fds]);
        if has_ended {
            self.ended_at = Some(BootInstant::now());
        }
        if is_closed {
            self.controller.mark_closed();
        }
        Ok(())
    }

    /// Next time at which [`Self::end_reason`] may change without an event.
    fn deadline(&self, now: BootInstant) -> BootInstant {
        let output_deadline = self.ended_at.map(|ended_at| match self.stop_by {
            Some(_) => now.after(ORPHAN_CHECK_INTERVAL),
            None => ended_at.after(OUTPUT_CLOSE_TIMEOUT),
        });
        [self.stop_by, output_deadline]
            .into_iter()
            .flatten()
            .fold(self.controller.next_deadline(), BootInstant::min)
    }
}

/// Derives the reported end from the reason and the status of the main process.
fn end(
    reason: EndReason,
    has_ended: bool,
    launch: Option<&LaunchOutcome>,
    status: Option<End>,
) -> Result<End, SupervisorError> {
    if let EndReason::NotStarted(reason) = reason {
        return Ok(End::NotStarted { reason });
    }
    let status = status.ok_or(SupervisorError::NoStatus)?;
    if let Some(code) = status.code() {
        if launch == Some(&LaunchOutcome::Silent) {
            let reason = format!("the launch step ended without a reply (exit code {code})");
            return Ok(End::NotStarted { reason });
        }
        return Ok(status);
    }
    if reason == EndReason::LostContact && !has_ended {
        return Ok(End::LostContact);
    }
    Ok(status)
}

/// The end of a process, from its wait status.
fn end_of_process(status: WaitStatus) -> Option<End> {
    status.exit_status().map(End::Code).or_else(|| status.terminating_signal().map(End::Signal))
}
