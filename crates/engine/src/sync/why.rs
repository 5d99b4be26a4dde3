//! Collects the facts that explain the state of a sync.

use super::{CONSOLIDATOR_LABEL, PAGES_LABEL, SYNC_LABEL};
use crate::Engine;
use tidemill_core::project::FlagName;
use tidemill_core::queue::{CONSOLIDATE, WORK_ITEMS};
use tidemill_core::run::{Gate, Run, RunState};
use tidemill_core::why::{ProcessCounts, SyncFacts, SyncReason, explain_sync};
use tidemill_core::{Json, Timestamp, limits};
use tidemill_feeds::Circuit;
use tidemill_store::{Error, SyncMessage};

impl Engine {
    /// Explains what a sync waits for; `None` if the reasons of its run already explain it.
    pub(crate) async fn why_sync(&self, run: &Run, now: Timestamp) -> Result<Option<SyncReason>, Error> {
        let waits_in_line = run.status == RunState::Queued && run.gate != Some(Gate::Open);
        let name = run.metadata.get("feed").and_then(Json::as_str);
        let is_over = matches!(run.status, RunState::Failed | RunState::Cancelled);
        let (false, false, Some(name)) = (is_over, waits_in_line, name) else { return Ok(None) };
        let store = self.store();
        // A run can name the feed of another project, whose state must stay hidden.
        let feed = store.feed(name.to_owned()).await.ok();
        let Some(feed) = feed.filter(|feed| feed.feed.project_id == run.project_id) else { return Ok(None) };
        let sync = store.sync(run.run_id.to_string()).await.ok();
        let partitions = match &sync {
            Some(sync) => store.partitions(sync.run_id).await?,
            None => Vec::new(),
        };
        let messages = match &sync {
            Some(sync) if sync.state.is_live() => store.messages_of_sync(sync.clone()).await?,
            _ => Vec::new(),
        };
        let since = now - chrono::TimeDelta::seconds(i64::try_from(limits::DEAD_AFTER_SECS).unwrap_or(20));
        let workers = store.workers().await?;
        let holder_of = |message: &SyncMessage| {
            let holder = message.holder(now)?;
            workers.iter().find(|worker| worker.worker_id == holder).map(|worker| worker.name.clone())
        };
        let page_holders = messages
            .iter()
            .filter(|message| message.queue == WORK_ITEMS)
            .filter_map(|message| Some((message.partition()?.to_owned(), holder_of(message)?)));
        let hands = |label: &str| {
            let mut hands = ProcessCounts::default();
            for worker in workers.iter().filter(|worker| worker.ended_at.is_none() && worker.beat_at > since)
            {
                let fits = i64::from(worker.labels.iter().any(|own| own == label));
                *(if worker.draining { &mut hands.draining } else { &mut hands.taking }) += fits;
            }
            hands
        };
        let scope = format!("feed:{name}");
        let flags = store.flags().await?;
        let paused = flags.into_iter().find(|flag| {
            flag.flag == FlagName::Paused
                && flag.scope == scope
                && flag.until_at.is_none_or(|until| until > now)
        });
        // Only the sync that set the watermark is concerned by its copy.
        let last = feed.watermark.as_ref().and_then(|mark| mark.last_run_id.clone());
        let is_last = sync.as_ref().is_some_and(|sync| last == Some(sync.run_id.to_string()));
        let outage = match super::circuit::circuit_of(&feed) {
            Circuit::Open { since, probe_at, .. } => Some((since, probe_at)),
            Circuit::Probing { since, until, .. } => Some((since, until)),
            Circuit::Closed { .. } => None,
        };
        let facts = SyncFacts {
            feed: name.to_owned(),
            field: feed.feed.partition_field(),
            sync,
            partitions,
            outage,
            outage_reason: feed.circuit_reason,
            refusal: feed.refusal,
            paused: paused.map(|flag| flag.note),
            schedulers: hands(SYNC_LABEL),
            workers: hands(PAGES_LABEL),
            consolidators: hands(CONSOLIDATOR_LABEL),
            copy_error: feed.copy_error.filter(|_| is_last),
            page_holders: page_holders.collect(),
            consolidation_holder: messages
                .iter()
                .filter(|message| message.queue == CONSOLIDATE)
                .find_map(holder_of),
            now,
        };
        Ok(explain_sync(&facts, run.status != RunState::Queued))
    }
}
