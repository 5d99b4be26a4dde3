//! What Tidemill keeps: PostgreSQL and SQLite behind one [`Store`].
//!
//! The kernel's verbs are SQL functions on PostgreSQL, which Rust calls, and statements on SQLite. Everything else
//! shares its SQL. A change of state names what it believes; a belief that is no longer true is an outcome
//! ([`tidemill_core::run::Applied`]), not an error.

mod alerts;
mod artifacts;
mod backup;
#[cfg(feature = "broken-commit-then-send")]
mod broken;
mod catalog;
mod codec;
mod deliveries;
mod drain;
mod error;
mod events;
mod feeds;
mod flags;
mod health;
mod hooks;
mod migrate;
mod pages;
mod partitions;
mod postgres;
mod projects;
mod prune;
mod queue;
mod rejects;
mod roles;
mod rules;
mod runs;
mod schedules;
mod schema;
mod sqlite;
mod stats;
mod stones;
mod store;
mod sweep;
mod syncs;
mod tx;
mod wake;
mod why;
mod workers;

pub use alerts::{AlertFilter, DeadGroup, NewAlert, StuckSync, Waiting};
pub use deliveries::Delivery;
pub use error::{Class, Error, Refusal, RefusalCode};
pub use events::EventPage;
pub use health::{Health, PinningSession};
pub use migrate::{Migrated, Migration, Presence};
pub use pages::{NewPage, PageRow};
pub use partitions::{Advance, NewPartition, Place};
pub use prune::Pruned;
pub use queue::{Answer, Purged, Queue, Receive};
pub use rejects::NewReject;
pub use roles::Roles;
pub use schedules::Fired;
pub use schema::{Pooler, Schema};
pub use stones::{Built, OpenStone, PricedStone, ProofRow, Unseen};
pub use store::{Clock, Options, Store};
pub use sweep::{Swept, SweptAction};
pub use syncs::{PartitionCounts, SyncMessage};
pub use tidemill_core::run::{Cancelled, ClaimRuns, FinishRun, Holder, Queued, Retried, RunFilter};
pub use tx::Tx;
pub use wake::Waiter;
