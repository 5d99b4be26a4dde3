//! Graphs: how they are written down, what is to be done about each job, and in which order.

mod check;
pub mod definition;
mod fault;
pub mod pattern;
pub mod place;
pub mod plan;
mod read;
pub mod record;
pub mod schema;
pub mod share;
pub mod units;
mod yaml;

pub use definition::{Graph, JobSpec};
pub use fault::GraphFault;
pub use read::parse;
