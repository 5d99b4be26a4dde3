//! Runs one command under a supervisor process that outlives neither the worker nor the worker's lease.
//!
//! Three processes take part. The *worker* holds a [`Supervised`]. The *supervisor* ([`supervise`], our own binary
//! again) stands between: it kills the command when the worker dies or gives no sign of contact for too long. The
//! *launch step* ([`launch`]) binds the command's life to the supervisor's and then becomes the command.
//! See [`supervise`] for what is promised, and for the few cases that are not.
//!
//! A command can also outlive whoever started it: [`Lasting`] is its directory, [`supervise_detached`] its
//! supervisor.

mod handle;
mod lasting;
mod launch;
mod lines;
mod mask;
mod moment;
mod order;
mod process_table;
mod record;
mod remains;
mod report;
mod spec;
mod supervise;

pub use handle::{Control, Error, Supervised};
pub use lasting::{Lasting, Seen};
pub use launch::launch;
pub use mask::Mask;
pub use moment::Moment;
pub use process_table::{SupervisorProcess, directories_in_use};
pub use record::{Exit, LastingSpec, Limits, write_record, write_whole};
pub use report::{End, Part, Report, Stream};
pub use spec::Spec;
pub use supervise::{supervise, supervise_detached};
