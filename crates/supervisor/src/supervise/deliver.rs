//! The last phase: the command is dead, and the worker receives its remaining output and its end.

use std::time::Duration;

use super::controller::Controller as _;
use super::pipes::Output;
use super::worker_connection::WorkerConnection;
use super::{SupervisorError, sleep};
use crate::boot_instant::BootInstant;
use crate::report::{End, Report};

/// Time limit for the last reports to a worker that does not confirm contact.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// Reports the remaining output and the end, and waits until the worker has read them.
///
/// While the worker confirms contact, there is no time limit.
pub(super) fn deliver(
    worker: &mut WorkerConnection,
    outputs: &mut [Output],
    end: End,
) -> Result<(), SupervisorError> {
    let started_at = BootInstant::now();
    let mut end = Some(end);
    loop {
        let now = BootInstant::now();
        // Only contact messages matter now: a dead command can be neither stopped nor killed.
        worker.receive();
        if worker.has_room() {
            for output in outputs.iter_mut() {
                output.read_rest(worker);
            }
        }
        if outputs.iter().all(Output::is_closed)
            && let Some(end) = end.take()
        {
            worker.report(&Report::Exited(end));
        }
        worker.flush();
        // If the worker has ended, no process reads the report.
        if worker.is_gone() || (end.is_none() && !worker.has_outgoing()) {
            return Ok(());
        }
        let give_up_at = worker.contact_ends().max(started_at).after(REPORT_MAX);
        if now >= give_up_at {
            return Err(SupervisorError::Unread);
        }
        let closed = {
            let mut fds = worker.poll_fds();
            sleep(&mut fds, now, give_up_at)?;
            WorkerConnection::is_closed(&fds)
        };
        if closed {
            worker.mark_closed();
        }
    }
}
