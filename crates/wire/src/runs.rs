//! Requests and responses about runs.

mod batch;

pub use batch::{BatchRun, NewRuns, QueuedRuns, batch_position};

use serde::{Deserialize, Serialize};
use tidemill_core::artifact::Artifact;
use tidemill_core::event::{Event, Level};
use tidemill_core::run::{
    CancelOutcome, ChangeOutcome, FinalStatus, Lane, QueueRun, Run, RunCursor, RunState,
};
use tidemill_core::{Json, RunId, Timestamp, limits};

/// Request to queue a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// Project of the run.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"shop"))]
    pub project: String,
    /// Name of the environment within the project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"staging"))]
    pub env: String,
    /// Commit to work on.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_sha: Option<String>,
    /// Branch or tag to work on.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024), example = &"refs/heads/main"))]
    pub git_ref: Option<String>,
    /// Metadata for the worker.
    #[serde(default = "object")]
    #[cfg_attr(feature = "schema", schemars(extend("type" = "object")))]
    pub metadata: Json,
    /// Priority; higher values are claimed first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = -1_000_000, max = 1_000_000)))]
    pub priority: i32,
    /// Earliest time of a claim.
    #[serde(default)]
    pub available_at: Option<Timestamp>,
    /// Time at which the run is cancelled if it was not claimed.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// Number of attempts before a reported failure is final.
    #[serde(default = "attempts")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_attempts: i32,
    /// Number of lost workers before the run is quarantined.
    #[serde(default = "losses")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1000)))]
    pub max_losses: i32,
    /// Wait before the first retry of a reported failure in seconds; it doubles with each retry.
    #[serde(default = "backoff")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 3600)))]
    pub backoff_secs: i32,
    /// Time limit for the running state in seconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 31_536_000)))]
    pub timeout_secs: Option<i32>,
    /// Concurrency key: at most one run of the project with the same key is claimed at a time.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub concurrency_key: Option<String>,
    /// Labels that a worker must have.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 32), inner(regex(pattern = r"^[^,]{1,1024}$"))))]
    pub labels: Vec<String>,
    /// Kind of work, by which a worker chooses the handler; empty if the run has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 100), example = &"email"))]
    pub kind: String,
    /// Id of the new run, chosen by the caller. A repeated request with the same id returns the existing run. Callers
    /// that are limited to one project use an `Idempotency-Key` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "new_run_id"))]
    pub run_id: Option<RunId>,
}

/// Returns the schema of a new run's id. Ids in responses may have other formats, because SQL may have written them.
#[cfg(feature = "schema")]
fn new_run_id(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": ["string", "null"], "pattern": "^run-[a-z0-9-]{1,60}$"})
}

pub(crate) fn object() -> Json {
    Json::Object(serde_json::Map::new())
}

const fn attempts() -> i32 {
    limits::ATTEMPTS_DEFAULT
}

const fn losses() -> i32 {
    limits::LOSSES_DEFAULT
}

const fn backoff() -> i32 {
    limits::BACKOFF_SECS
}

impl NewRun {
    /// Makes the request with an idempotency key.
    pub fn into_request(self, idempotency_key: Option<String>) -> QueueRun {
        QueueRun {
            project: self.project,
            env: self.env,
            git_sha: self.git_sha,
            git_ref: self.git_ref,
            metadata: self.metadata,
            idempotency_key,
            priority: self.priority,
            available_at: self.available_at,
            expires_at: self.expires_at,
            max_attempts: self.max_attempts,
            max_losses: self.max_losses,
            backoff_secs: self.backoff_secs,
            timeout_secs: self.timeout_secs,
            concurrency_key: self.concurrency_key,
            labels: self.labels,
            kind: self.kind,
        }
    }
}

impl From<QueueRun> for NewRun {
    fn from(run: QueueRun) -> Self {
        Self {
            project: run.project,
            env: run.env,
            git_sha: run.git_sha,
            git_ref: run.git_ref,
            metadata: run.metadata,
            priority: run.priority,
            available_at: run.available_at,
            expires_at: run.expires_at,
            max_attempts: run.max_attempts,
            max_losses: run.max_losses,
            backoff_secs: run.backoff_secs,
            timeout_secs: run.timeout_secs,
            concurrency_key: run.concurrency_key,
            labels: run.labels,
            kind: run.kind,
            run_id: None,
        }
    }
}

/// Filter of the list of runs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// Project to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// Name of the environment to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub env: Option<String>,
    /// State to filter by.
    pub status: Option<RunState>,
    /// Lane to filter by.
    pub lane: Option<Lane>,
    /// Kind to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub kind: Option<String>,
    /// Feed whose syncs to list.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// Earliest time of queueing, inclusive.
    pub since: Option<Timestamp>,
    /// Latest time of queueing, exclusive.
    pub until: Option<Timestamp>,
    /// Prefix of the run id.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^run-[a-z0-9-]{0,60}$")))]
    pub id_prefix: Option<String>,
    /// Prefix of the commit, at least four characters, as in git.
    #[cfg_attr(feature = "schema", schemars(length(min = 4, max = 1024)))]
    pub sha_prefix: Option<String>,
    /// Prefix of the branch or tag.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub ref_prefix: Option<String>,
    /// Prefix of the name: that of the graph, or of the feed of the sync. Other runs have no name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub name_prefix: Option<String>,
    /// Cursor: `next` of the previous page.
    pub after: Option<RunCursor>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter of the list of open failures, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListFailures {
    /// Project to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// Earliest time of queueing, inclusive.
    pub since: Option<Timestamp>,
    /// Cursor: `next` of the previous page.
    pub after: Option<RunCursor>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter of the list of waiting runs, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListWaiting {
    /// Project to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// Cursor: `next` of the previous page.
    pub after: Option<RunCursor>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// The expected holder of a run. The call is stale if the run has another holder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// Name of the worker that claimed the run.
    pub worker: String,
    /// Number of the claim.
    pub epoch: i32,
}

/// An event that is appended to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    pub level: Level,
    /// Message or line of output.
    pub message: String,
    #[serde(default = "object")]
    pub payload: Json,
    /// Idempotency key: a second event of the run with the same key is not appended.
    #[serde(default)]
    pub key: Option<String>,
}

/// Events to append to a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Append {
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub events: Vec<NewEvent>,
    /// Name of the worker that claimed the run.
    pub worker: String,
    /// Number of the claim.
    pub epoch: i32,
}

/// The ids of the appended events; null if the caller no longer holds the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppendResponse {
    /// One id for each event.
    pub event_ids: Vec<Option<String>>,
}

/// Parameters of the list of a run's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// Return events after this sequence number.
    pub after: Option<i32>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter for reading a run's events from the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListTail {
    /// Return events before this sequence number; by default from the end.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub before: Option<i32>,
    pub level: Option<Level>,
    /// Text that the message must contain, ignoring case.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub contains: Option<String>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// The last events of a run, or a part before them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tail {
    /// Events, in order.
    pub items: Vec<Event>,
    /// Value to pass as `before` to continue towards the beginning; null at the beginning. One call scans a bounded
    /// number of events, so a narrow search may return no events and still continue.
    pub before: Option<i32>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Finish {
    pub status: FinalStatus,
    /// Metadata to merge into that of the run.
    #[serde(default = "object")]
    pub metadata: Json,
    /// Name of the worker that claimed the run.
    pub worker: String,
    /// Number of the claim.
    pub epoch: i32,
}

/// The end of one of several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishOne {
    /// Id of the run.
    pub run_id: RunId,
    pub status: FinalStatus,
    /// Metadata to merge into that of the run.
    #[serde(default = "object")]
    pub metadata: Json,
    /// Number of the claim.
    pub epoch: i32,
}

/// The ends of several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishMany {
    /// Ends of the runs.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub ends: Vec<FinishOne>,
    /// Name of the worker that claimed the runs.
    pub worker: String,
}

/// The outcomes of several ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcomes {
    /// One outcome for each end.
    pub outcomes: Vec<ChangeOutcome>,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Whether this call or an earlier one applied it, or the call was stale.
    pub outcome: ChangeOutcome,
}

/// A request to cancel a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Reason of the cancel.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelResponse {
    /// Id of the run.
    pub run_id: RunId,
    /// Outcome for this run.
    pub outcome: CancelOutcome,
    /// Live run of the same request, if it is another one.
    pub live_successor: Option<RunId>,
}

/// A decision to fail a stalled run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// Reason, which is written to the run's events.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether to queue a successor.
    #[serde(default)]
    pub retry: bool,
}

/// The outcome of failing a stalled run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailResponse {
    /// Id of the run.
    pub run_id: RunId,
    /// Whether this call or an earlier one failed the run.
    pub outcome: ChangeOutcome,
    /// Id of the successor, if one was queued.
    pub successor: Option<RunId>,
}

/// The reason for the current state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// Id of the run.
    pub run_id: RunId,
    /// Reason as a sentence.
    pub sentence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Reason for programs: `code` and its details.
    #[serde(flatten)]
    pub reason: serde_json::Map<String, Json>,
}

/// A run with its reason, attempts and artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunDetail {
    /// Id of the run.
    pub run: Run,
    /// Reason for its current state.
    pub why: Why,
    /// All attempts at the request, oldest first.
    pub tries: Vec<Run>,
    /// First artifacts of the run; a separate list returns all of them.
    pub artifacts: Vec<Artifact>,
}

/// Parameters of the list of a run's artifacts, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListArtifacts {
    /// Cursor: `next` of the previous page.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub after: Option<String>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Request to record an artifact of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewArtifact {
    /// Type: image, sbom, logs …
    pub artifact_type: String,
    /// Location of the file.
    pub url: String,
    /// Digest of the contents.
    #[serde(default)]
    pub digest: Option<String>,
    #[serde(default)]
    pub size_bytes: Option<i64>,
    #[serde(default = "object")]
    pub metadata: Json,
    /// Name of the worker that claimed the run; empty if no worker claimed it and the server requires no tokens.
    pub worker: String,
    /// Number of the claim; 0 if there is none.
    pub epoch: i32,
}

/// Response with the recorded artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArtifactResponse {
    /// Id of the artifact.
    pub artifact_id: String,
    /// Id of the run.
    pub run_id: RunId,
}
