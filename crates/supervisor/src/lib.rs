//! Runs one command under a supervisor process that outlives neither the worker nor the worker's lease.
//!
//! Three processes take part. The *worker* holds a [`SupervisedCommand`]. The *supervisor* ([`supervise`], the same
//! binary) kills the command when the worker dies or sends no contact message for too long. The *launch step*
//! ([`launch`]) sets the parent-death signal and then executes the command in its own process. With [`Namespaces`]
//! there are two more launch steps: the first enters the namespaces, the second is their init process.
//!
//! [`supervise`] lists the guarantees and the few cases that they do not cover.
//!
//! A detached command outlives the process that started it: [`DetachedCommand`] is its directory,
//! [`supervise_detached`] its supervisor.

mod boot_instant;
mod cgroup;
mod controllers;
mod detached;
mod handle;
mod isolation;
mod launch;
mod lines;
mod mask;
mod orphans;
mod process_table;
mod protocol;
mod record;
mod report;
mod spec;
mod supervise;
mod worker_groups;

pub use boot_instant::BootInstant;
pub use cgroup::{CommandGroup, parent_group};
pub use controllers::enable_controllers;
pub use detached::{CommandState, DetachedCommand};
pub use handle::{Control, Error, SupervisedCommand};
pub use isolation::{CommandUser, Isolation, Namespaces};
pub use launch::launch;
pub use mask::Mask;
pub use process_table::{SupervisorProcess, directories_in_use};
pub use record::{DetachedSpec, Exit, Limits, boot_id, write_atomic, write_durable};
pub use report::{End, Part, Report, Stream};
pub use spec::Spec;
pub use supervise::{supervise, supervise_detached};
