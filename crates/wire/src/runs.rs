//! Runs: what is asked and said about them.

use serde::{Deserialize, Serialize};
use tidemill_core::artifact::Artifact;
use tidemill_core::event::{Event, Level};
use tidemill_core::run::{Applied, Cancelled, FinalStatus, Lane, QueueRun, Run, RunState};
use tidemill_core::{Json, RunId, Timestamp, limits};

/// A run to queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// The project that it belongs to.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"shop"))]
    pub project: String,
    /// The environment, by its name within the project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"staging"))]
    pub env: String,
    /// The commit to work on.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_sha: Option<String>,
    /// The branch or tag to work on.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024), example = &"refs/heads/main"))]
    pub git_ref: Option<String>,
    /// What the worker should know.
    #[serde(default = "object")]
    #[cfg_attr(feature = "schema", schemars(extend("type" = "object")))]
    pub metadata: Json,
    /// Larger is first.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = -1_000_000, max = 1_000_000)))]
    pub priority: i32,
    /// Not before this time.
    #[serde(default)]
    pub available_at: Option<Timestamp>,
    /// Not claimed by this time: cancelled.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// Tries in all before a failure that a worker reports is final.
    #[serde(default = "attempts")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub max_attempts: i32,
    /// Times the run may lose its worker.
    #[serde(default = "losses")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1000)))]
    pub max_losses: i32,
    /// Wait before the first retry of a reported failure; doubles each time.
    #[serde(default = "backoff")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 3600)))]
    pub backoff_secs: i32,
    /// How long the run may be running.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 31_536_000)))]
    pub timeout_secs: Option<i32>,
    /// At most one run of the project with this key is claimed at a time.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub concurrency_key: Option<String>,
    /// What a worker must offer.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 32), inner(regex(pattern = r"^[^,]{1,1024}$"))))]
    pub labels: Vec<String>,
    /// The id that the run is to have, made by the caller: asked again with it, the answer is the run that exists.
    /// A caller of one project uses an `Idempotency-Key` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "new_run_id"))]
    pub run_id: Option<RunId>,
}

/// The form of a new run's id. Ids in answers may have others, which SQL wrote.
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
    /// The request, under the key that makes asking twice the same as asking once.
    pub fn keyed(self, idempotency_key: Option<String>) -> QueueRun {
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
            run_id: None,
        }
    }
}

/// Which runs to list, the newest first; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// Of this project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// Of this environment, by name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub env: Option<String>,
    /// In this state.
    pub status: Option<RunState>,
    /// Of this lane.
    pub lane: Option<Lane>,
    /// Runs of syncs of this feed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// Queued at this time or later.
    pub since: Option<Timestamp>,
    /// Queued before this time.
    pub until: Option<Timestamp>,
    /// With an id that begins so.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^run-[a-z0-9-]{0,60}$")))]
    pub id_prefix: Option<String>,
    /// On a commit whose name begins so; four characters at the least, as with git itself.
    #[cfg_attr(feature = "schema", schemars(length(min = 4, max = 1024)))]
    pub sha_prefix: Option<String>,
    /// On a branch or tag whose name begins so.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub ref_prefix: Option<String>,
    /// With a name that begins so: that of its graph, or of the feed of its sync. Other runs have none.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub name_prefix: Option<String>,
    /// The cursor of the page before.
    pub after: Option<RunId>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which failures to list, the newest first; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListFailures {
    /// Of this project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// Queued at this time or later.
    pub since: Option<Timestamp>,
    /// The cursor of the page before.
    pub after: Option<RunId>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which runs that wait to list, the oldest first; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListWaiting {
    /// Of this project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub project: Option<String>,
    /// The cursor of the page before.
    pub after: Option<RunId>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// What a caller believes about its hold on a run. What it does not know is not held against it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// The name under which it claimed.
    #[serde(default)]
    pub worker: Option<String>,
    /// The fence that it was given.
    #[serde(default)]
    pub epoch: Option<i32>,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    /// How much it matters.
    pub level: Level,
    /// A sentence, or a line of output.
    pub message: String,
    /// Details.
    #[serde(default = "object")]
    pub payload: Json,
    /// The key that makes appending it twice the same as once.
    #[serde(default)]
    pub key: Option<String>,
}

/// Events to append to a run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Append {
    /// The events.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub events: Vec<NewEvent>,
    /// The name under which the caller claimed.
    #[serde(default)]
    pub worker: Option<String>,
    /// The fence that it was given.
    #[serde(default)]
    pub epoch: Option<i32>,
}

/// The ids of what was appended; nothing where the caller no longer holds the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Appended {
    /// One for each event.
    pub event_ids: Vec<Option<String>>,
}

/// The part of a run's record to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// After this place.
    pub after: Option<i32>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// The part of a run's record to read from its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListTail {
    /// Before this place; from the end unless told.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub before: Option<i32>,
    /// Only events that matter so much, or more.
    pub level: Option<Level>,
    /// Only events whose message has this text in it, in any case of letters.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub contains: Option<String>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// The end of a run's record, or a part before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tail {
    /// The events, in their order.
    pub items: Vec<Event>,
    /// What to pass as `before` to read on towards the beginning; nothing where the beginning was reached. One call
    /// looks at a bounded part of the record, so a narrow search may find nothing in it and go on.
    pub before: Option<i32>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Finish {
    /// How it ended.
    pub status: FinalStatus,
    /// What to add to its metadata.
    #[serde(default = "object")]
    pub metadata: Json,
    /// The name under which the caller claimed.
    #[serde(default)]
    pub worker: Option<String>,
    /// The fence that it was given.
    #[serde(default)]
    pub epoch: Option<i32>,
}

/// The end of one run of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishOne {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: FinalStatus,
    /// What to add to its metadata.
    #[serde(default = "object")]
    pub metadata: Json,
    /// The fence that the worker was given.
    #[serde(default)]
    pub epoch: Option<i32>,
}

/// The ends of several runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FinishMany {
    /// The ends.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub ends: Vec<FinishOne>,
    /// The name under which the caller claimed.
    #[serde(default)]
    pub worker: Option<String>,
}

/// What became of each end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcomes {
    /// One for each.
    pub outcomes: Vec<Applied>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Whether it was applied now, or had been before.
    pub outcome: Applied,
}

/// A wish that a run stops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// What a cancel did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelAnswer {
    /// The run.
    pub run_id: RunId,
    /// What was done.
    pub outcome: Cancelled,
    /// The try of the same request that has not ended, if it is another one.
    pub live_successor: Option<RunId>,
}

/// A decision to fail a stalled run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The reason, for the run's record.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether to queue a successor.
    #[serde(default)]
    pub retry: bool,
}

/// The outcome of failing a stalled run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailAnswer {
    /// The run.
    pub run_id: RunId,
    /// Whether this call failed the run, or an earlier one did.
    pub outcome: Applied,
    /// The successor, if one was queued.
    pub successor: Option<RunId>,
}

/// Why something is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// The run.
    pub run_id: RunId,
    /// The reason as a sentence.
    pub sentence: String,
    /// What to do, where there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The reason as programs read it: `code` and its details.
    #[serde(flatten)]
    pub reason: serde_json::Map<String, Json>,
}

/// A run with what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Why it is where it is.
    pub why: Why,
    /// Every try of its request, the first one first.
    pub tries: Vec<Run>,
    /// The first things that it left; all of them have a list of their own.
    pub artifacts: Vec<Artifact>,
}

/// Which artifacts of a run to list, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListArtifacts {
    /// The cursor of the page before.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub after: Option<String>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// An artifact to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewArtifact {
    /// What it is.
    pub artifact_type: String,
    /// Where it is.
    pub url: String,
    /// Its digest.
    #[serde(default)]
    pub digest: Option<String>,
    /// Its size.
    #[serde(default)]
    pub size_bytes: Option<i64>,
    /// Details.
    #[serde(default = "object")]
    pub metadata: Json,
}

/// An artifact that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArtifactAnswer {
    /// Its id.
    pub artifact_id: String,
    /// The run.
    pub run_id: RunId,
}
