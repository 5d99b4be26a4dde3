//! Graphs: their definition files, the decision for each job, and the assignment of jobs to agents.

pub mod assignment;
mod check;
pub mod definition;
pub mod pattern;
pub mod placement;
pub mod plan;
mod read;
pub mod record;
pub mod schema;
pub mod units;

pub use crate::definition::DefinitionError;
pub use definition::{Graph, JobSpec};
pub use read::parse;
