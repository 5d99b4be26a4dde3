//! Requests, responses and errors of the HTTP API, for the server and its clients.
//!
//! Stored records are sent as they are, see [`tidemill_core`]; this crate contains the types that exist only in the
//! API. A request with an unknown field is rejected. Responses may gain fields, and clients ignore unknown ones.

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
pub use problem::{FieldError, Problem};
