//! What is said over HTTP: requests, answers and problems, for the server and its clients alike.
//!
//! Records that are kept are said as they are: see [`tidemill_core`]. Here stands what exists only on the wire. A
//! request with a field that nobody knows is refused; an answer may grow fields, and a client ignores them.

pub mod alerts;
pub mod claims;
pub mod hooks;
pub mod info;
pub mod list;
pub mod problem;
pub mod runs;
pub mod workers;

pub use list::Page;
pub use problem::{Fault, Problem};
