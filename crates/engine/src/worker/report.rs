//! Reports the end of a run, until it is recorded or turns out to be too late.
//!
//! The size of a run's metadata is limited. If a result does not fit, it is reported without the large parts: the
//! status of the run matters most, and the command's output was written as events before.

use super::transport::Transport;
use super::with_timeout;
use crate::retry_policy::{RetryPolicy, chain};
use std::time::Duration;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{ChangeOutcome, FinalStatus};
use tidemill_core::{Json, RunId};
use tidemill_store::{FinishRun, Holder};

/// Metadata that is reported even if the rest does not fit.
const SHORT_FIELDS: [&str; 2] = ["exit_code", "signal"];

/// Reports the end of one run.
pub(super) struct Report<'a, D> {
    pub(super) transport: &'a D,
    pub(super) run: &'a RunId,
    pub(super) holder: &'a Holder,
    pub(super) kind: &'a str,
    /// Time limit of one attempt.
    pub(super) call_timeout: Duration,
}

impl<D: Transport> Report<'_, D> {
    /// Retries until the end is recorded or turns out to be too late.
    pub(super) async fn send(&self, status: FinalStatus, metadata: &Json) -> Option<ChangeOutcome> {
        let mut answer = self.finish(status, metadata.clone()).await;
        if answer.as_ref().is_err_and(D::is_too_large) {
            self.record_omission(metadata).await;
            for less in [shortened(metadata), Json::Object(serde_json::Map::new())] {
                answer = self.finish(status, less).await;
                if !answer.as_ref().is_err_and(D::is_too_large) {
                    break;
                }
            }
        }
        let run = self.run;
        answer
            .inspect_err(|error| {
                tracing::error!(run.id = %run, "could not record the end of run {run}: {}", chain(error));
            })
            .ok()
    }

    async fn finish(&self, status: FinalStatus, metadata: Json) -> Result<ChangeOutcome, D::Error> {
        let end = FinishRun { run_id: self.run.clone(), status, metadata, epoch: self.holder.epoch };
        let finish = || {
            let request = self.transport.finish(end.clone(), self.holder.worker.clone(), self.kind);
            with_timeout(self.transport, "finish a run", self.call_timeout, request)
        };
        RetryPolicy::Endless.retry("finish a run", finish).await
    }

    /// Writes an event that lists the omitted fields. This comes before the end, because an ended run accepts no
    /// events.
    async fn record_omission(&self, metadata: &Json) {
        let run = self.run;
        tracing::warn!(run.id = %run, "the result of run {run} exceeds the metadata limit; it is recorded without it");
        let message = "The result of this run exceeds the metadata limit and is not recorded";
        let mut event = NewEvent::new(Level::Warn, message).keyed("left-out");
        let names: Vec<&String> =
            metadata.as_object().into_iter().flat_map(serde_json::Map::keys).take(32).collect();
        event.payload = serde_json::json!({"reported": names});
        let append = || {
            let request = self.transport.append(run, vec![event.clone()], self.holder);
            with_timeout(self.transport, "append events", self.call_timeout, request)
        };
        if let Err(error) = RetryPolicy::Endless.retry("append events", append).await {
            tracing::error!(run.id = %run, "could not write events of run {run}: {}", chain(&error));
        }
    }
}

fn shortened(metadata: &Json) -> Json {
    let fields =
        SHORT_FIELDS.into_iter().filter_map(|name| Some((name.to_owned(), metadata.get(name)?.clone())));
    Json::Object(fields.collect())
}
