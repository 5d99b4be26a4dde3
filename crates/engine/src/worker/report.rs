//! How a worker reports the end of a run: until it was taken, or turned out to be too late.
//!
//! A run's metadata is bounded, and what was asked for may fill it. An end that does not fit is reported with less: how
//! the run ended counts, and what is left out was written as events before.

use super::door::Door;
use super::in_time;
use crate::patience::{Patience, chain};
use std::time::Duration;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{Applied, FinalStatus};
use tidemill_core::{Json, RunId};
use tidemill_store::{FinishRun, Holder};

/// What says in a few bytes how a command ended.
const KEPT_FIRST: [&str; 2] = ["exit_code", "signal"];

/// The end of one run, on its way to the database.
pub(super) struct Report<'a, D> {
    pub(super) door: &'a D,
    pub(super) run: &'a RunId,
    pub(super) holder: &'a Holder,
    /// How long one ask may take: each can be asked twice.
    pub(super) answer_max: Duration,
}

impl<D: Door> Report<'_, D> {
    /// Reports until the end was taken, or turned out to be too late.
    pub(super) async fn send(&self, status: FinalStatus, metadata: &Json) -> Option<Applied> {
        let mut answer = self.finish(status, metadata.clone()).await;
        if answer.as_ref().is_err_and(D::is_too_large) {
            self.say_what_is_left_out(metadata).await;
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
                tracing::error!(run.id = %run, "the end of run {run} was not recorded: {}", chain(error));
            })
            .ok()
    }

    async fn finish(&self, status: FinalStatus, metadata: Json) -> Result<Applied, D::Error> {
        let end = FinishRun { run_id: self.run.clone(), status, metadata, epoch: self.holder.epoch };
        let finish = || {
            let asked = self.door.finish(end.clone(), self.holder.worker.clone());
            in_time(self.door, "finish a run", self.answer_max, asked)
        };
        Patience::Endless.settle("finish a run", finish).await
    }

    /// Before the end: a run that has ended takes no events.
    async fn say_what_is_left_out(&self, metadata: &Json) {
        let run = self.run;
        tracing::warn!(run.id = %run, "what run {run} reports does not fit into its metadata, and is left out");
        let message = "What this run reports does not fit into its metadata, and is left out";
        let mut event = NewEvent::new(Level::Warn, message).keyed("left-out");
        let names: Vec<&String> =
            metadata.as_object().into_iter().flat_map(serde_json::Map::keys).take(32).collect();
        event.payload = serde_json::json!({"reported": names});
        let append = || {
            let asked = self.door.append(run, vec![event.clone()], self.holder);
            in_time(self.door, "append events", self.answer_max, asked)
        };
        if let Err(error) = Patience::Endless.settle("append events", append).await {
            tracing::error!(run.id = %run, "events of run {run} were not written: {}", chain(&error));
        }
    }
}

fn shortened(metadata: &Json) -> Json {
    let kept = KEPT_FIRST.into_iter().filter_map(|name| Some((name.to_owned(), metadata.get(name)?.clone())));
    Json::Object(kept.collect())
}
