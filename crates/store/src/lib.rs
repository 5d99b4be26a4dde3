//! What Tidemill keeps: PostgreSQL and SQLite behind one [`Store`].
//!
//! The kernel's verbs are SQL functions on PostgreSQL, which Rust calls, and statements on SQLite. Everything else
//! shares its SQL. A change of state names what it believes; a belief that is no longer true is an outcome
//! ([`tidemill_core::run::Applied`]), not an error.

mod access;
mod agents;
mod alerts;
mod artifacts;
mod backup;
#[cfg(feature = "broken")]
mod broken;
mod catalog;
mod codec;
mod controller;
mod controller_lease;
mod deliveries;
mod drain;
mod error;
mod events;
mod feeds;
mod flags;
mod graphs;
mod health;
mod hooks;
mod job_facts;
mod jobs;
mod live;
mod migrate;
mod monitor;
mod needs;
mod outputs;
mod page_step;
mod pages;
mod partitions;
mod pools;
mod postgres;
mod projects;
mod prune;
mod queue;
mod record;
mod rejects;
mod request_keys;
mod resource;
mod roles;
mod rules;
mod runs;
mod schedules;
mod schema;
mod sqlite;
mod standing;
mod stats;
mod stones;
mod store;
mod sweep;
mod syncs;
mod tasks;
mod tx;
mod unreadable;
mod wake;
mod whole;
mod why;
mod workers;

pub use access::{Known, KnownSession, PrunedAccess, Slice};
pub use agents::KnownAgent;
pub use alerts::{AlertFilter, DeadGroup, NewAlert, StuckSync, Waiting};
pub use controller::{Change, EndTask, JobWrite, LiveJob, LiveNeed, LiveTask, Look, NamedJob, NewTask};
pub use controller_lease::{ControllerLease, Held, Lease};
pub use deliveries::Delivery;
pub use error::{Class, Error, Refusal, RefusalCode, chain};
pub use events::{EventPage, EventTail};
pub use graphs::{Ending, NewGraph};
pub use health::{Health, PinningSession};
pub use jobs::{JobPage, LatestJob, NewJob, OldJob};
pub use live::{LiveEvent, LivePage};
pub use migrate::{Migrated, Migration, Presence};
pub use monitor::{
    LoopError, LoopFailure, LoopHandle, LoopOptions, LoopState, Next, Panic, TaskMonitor, catch_panic,
    catch_panic_in,
};
pub use outputs::{HeldFiles, Use};
pub use page_step::PageStep;
pub use pages::PageRow;
pub use partitions::{NewPartition, Place};
pub use postgres::Waits;
pub use prune::Pruned;
pub use queue::{Answer, Purged, Queue, Receive};
pub use record::{Record, note, unchanged};
pub use rejects::{GapFilter, NewReject, RejectFilter, RejectPlace};
pub use request_keys::{Asked, RequestKey};
pub use resource::Resource;
pub use roles::Roles;
pub use runs::Failures;
pub use schedules::Fired;
pub use schema::{Pooler, Schema};
pub use standing::{PoolUse, Standing, StandingLine};
pub use stones::{Built, OpenStone, OpenStones, PricedStone, ProofRow, Unseen};
pub use store::{Clock, Options, Store};
pub use sweep::{Swept, SweptAction};
pub use syncs::{PartitionCounts, SyncFilter, SyncMessage};
pub use tasks::{HeldTask, Orders};
pub use tidemill_core::run::{Cancelled, ClaimRuns, FinishRun, Holder, Queued, Retried, RunFilter};
pub use tx::Tx;
pub use wake::Waiter;
