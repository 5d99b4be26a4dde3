//! Database access: PostgreSQL and SQLite behind one [`Store`].
//!
//! The kernel operations are SQL functions on PostgreSQL, which Rust calls, and statements on SQLite. Everything else
//! shares its SQL. An update names the state that it expects. If the row is in another state, the update returns an
//! outcome ([`tidemill_core::run::ChangeOutcome`]), not an error.

mod access;
mod agents;
mod alerts;
mod artifacts;
mod audit;
mod audit_entry;
mod backup;
mod catalog;
mod codec;
mod controller;
mod controller_lease;
mod deliveries;
mod diamonds;
mod error;
mod error_class;
mod events;
mod feed_records;
mod feeds;
mod flags;
mod graphs;
mod health;
mod hooks;
mod job_facts;
mod jobs;
mod live;
mod lock_holder;
mod markers;
mod migrate;
mod monitor;
mod needs;
mod outputs;
mod overview;
mod page_step;
mod pages;
mod partitions;
mod pools;
mod postgres;
mod projects;
mod prune;
mod queue;
mod raw_tables;
mod records;
mod rejects;
mod request_keys;
mod resource;
mod roles;
mod rules;
mod run_to_completion;
mod runs;
mod schedules;
mod schema;
mod sections;
mod sqlite;
mod stats;
mod store;
mod sweep;
mod sync_ledgers;
mod sync_messages;
mod sync_runs;
mod syncs;
mod table_owners;
mod target_table;
mod tasks;
mod tx;
mod unreadable;
mod unseen;
mod wake;
mod why;
mod work_left;
mod workers;

pub use access::{AccessPruneCounts, BrowserSession, Credential, ListPage};
pub use agents::AgentRecord;
pub use alerts::{AlertFilter, Backlog, DeadGroup, NewAlert, StuckSync};
pub use audit_entry::AuditEntry;
pub use controller::{
    Change, ControllerSnapshot, EndTask, JobWrite, LiveJob, LiveNeed, LiveTask, NamedJob, NewTask,
};
pub use controller_lease::{ControllerLease, Lease, LeaseOutcome};
pub use deliveries::Delivery;
pub use diamonds::{PricedDiamond, ProofRow};
pub use error::{Class, Error, Refusal, RefusalCode, chain};
pub use events::{EventPage, EventTail};
pub use graphs::{JobEnding, NewGraph};
pub use health::{Health, PinningSession};
pub use hooks::HookRun;
pub use jobs::{JobPage, LatestJob, NewJob, OldJob};
pub use live::{LiveEvent, LivePage};
pub use lock_holder::LockHolder;
pub use markers::{MarkedObjects, Marker, Markers};
pub use migrate::{LockMode, Migration, MigrationPlan, MigrationReport, Presence, TableLock};
pub use monitor::{
    LoopError, LoopFailure, LoopHandle, LoopOptions, LoopState, Next, Panic, TaskMonitor, catch_panic,
    catch_panic_in,
};
pub use outputs::{HeldFiles, OutputUse};
pub use overview::{Overview, OverviewLine, PoolUse};
pub use page_step::PageStep;
pub use pages::{PageRow, PassRecord};
pub use partitions::{NewPartition, PartitionPosition};
pub use postgres::PoolWaits;
pub use prune::PruneCounts;
pub use queue::{PurgeCounts, Queue, QueueFuture, ReceiveRequest};
pub use records::{BuildVersions, OpenRecord, OpenRecords};
pub use rejects::{GapFilter, NewReject, RejectFilter, RejectPosition, UniqueRefusal};
pub use request_keys::{KeyClaim, RequestKey};
pub use resource::Resource;
pub use roles::Roles;
pub use runs::{Failures, RunClaim};
pub use schedules::FireRecord;
pub use schema::{Pooler, Schema};
pub use store::{Clock, Options, Store};
pub use sweep::SweptRun;
pub use sync_messages::SyncMessage;
pub use syncs::{PartitionCounts, SyncFilter, WholeSync};
pub use target_table::{FeedTables, TablePlan, TargetColumn, TargetRow, TargetTable, UniqueKeys};
pub use tasks::{HeldTask, OpenOrders};
pub use tidemill_core::run::{
    CancelOutcome, ClaimRuns, FinishRun, Holder, QueueOutcome, RetryOutcome, RunFilter,
};
pub use tx::Tx;
pub use unseen::UnseenCounts;
pub use wake::Waiter;
