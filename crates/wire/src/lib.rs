//! What is said over HTTP: requests, answers and problems, for the server and its clients alike.
//!
//! Records that are kept are said as they are: see [`tidemill_core`]. Here stands what exists only on the wire. A
//! request with a field that nobody knows is refused; an answer may grow fields, and a client ignores them.

pub mod access;
pub mod agents;
pub mod alerts;
pub mod claims;
pub mod feeds;
pub mod graphs;
pub mod hooks;
pub mod info;
pub mod list;
pub mod live;
pub mod problem;
pub mod projects;
pub mod queues;
pub mod rules;
pub mod runs;
pub mod schedules;
pub mod syncs;
pub mod workers;

pub use list::Page;
pub use problem::{Fault, Problem};
