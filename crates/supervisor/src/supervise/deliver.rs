//! The last part: the command is dead, and the worker is told the rest of its output and its end.

use std::time::Duration;

use super::master::Master as _;
use super::parent::Parent;
use super::pipes::Output;
use super::{Failure, sleep};
use crate::moment::Moment;
use crate::report::{End, Report};

/// How long the last reports wait for a worker that gives no sign of contact.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// Reports what is left in the pipes, then the end, and waits until the worker has read it.
///
/// A worker that is in contact may take its time; one that is not is given up after a while.
pub(super) fn deliver(parent: &mut Parent, outputs: &mut [Output], end: End) -> Result<(), Failure> {
    let begun = Moment::now();
    let mut end = Some(end);
    loop {
        let now = Moment::now();
        // Only signs of contact still matter: what is dead can be neither stopped nor killed.
        parent.hear();
        if parent.has_room() {
            for output in outputs.iter_mut() {
                output.read_rest(parent);
            }
        }
        if outputs.iter().all(Output::is_closed)
            && let Some(end) = end.take()
        {
            parent.report(&Report::Exited(end));
        }
        parent.flush();
        // A worker that is gone does not want to know.
        if parent.is_gone() || (end.is_none() && !parent.has_outgoing()) {
            return Ok(());
        }
        let give_up_at = parent.contact_ends().max(begun).after(REPORT_MAX);
        if now >= give_up_at {
            return Err(Failure::Unread);
        }
        let closed = {
            let mut fds = parent.poll_fds();
            sleep(&mut fds, now, give_up_at)?;
            Parent::is_closed(&fds)
        };
        if closed {
            parent.note_closed();
        }
    }
}
