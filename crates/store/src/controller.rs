//! Reads and writes of the controller: the live jobs, and one transaction at a time.
//!
//! Every transaction increments the version in the lease row and names the lease's epoch. A controller that was
//! replaced gets no version and writes nothing. The row stays locked until the transaction ends, so versions are
//! committed in order.

mod rows;
mod snapshot;
mod writes;

pub use rows::{Change, LiveJob, LiveNeed, LiveTask, NamedJob};
pub use snapshot::ControllerSnapshot;
pub use writes::{EndTask, JobWrite, NewTask};
