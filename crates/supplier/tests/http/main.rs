//! Tests of the stand-in supplier over real HTTP: its API, its configured misbehaviour and its changes.
#![expect(clippy::unwrap_used, reason = "a failed set-up ends the test")]

mod api;
mod behaviour;
mod changes;
mod fixture;
mod graphql;
mod rest;
mod throughput;
