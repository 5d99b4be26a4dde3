//! The REST API: every kind of pagination, the filters, and the configured misbehaviour.

mod client;
mod deviations;
mod filters;
mod pages;
