//! Pauses of a feed, its project or the lane. A paused feed is neither planned nor fetched, and its messages do not
//! expire meanwhile.

use super::Syncs;
use super::circuit::circuit_of;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::feed::Feed;
use tidemill_core::project::{Flag, FlagName, project_scope};
use tidemill_core::run::Claim;
use tidemill_feeds::{Admission, Circuit};
use tidemill_store::{Error, RefusalCode};

/// Scope of flags that pause all syncs.
const SYNC_SCOPE: &str = "lane:sync";
/// Time between two checks whether a feed is still paused.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Returns the flag that pauses a feed at `now`, if any.
pub(super) fn pause_of<'a>(flags: &'a [Flag], feed: &Feed, now: Timestamp) -> Option<&'a Flag> {
    let scopes = [format!("feed:{}", feed.feed), project_scope(&feed.project_id), SYNC_SCOPE.to_owned()];
    let holds =
        |flag: &&Flag| flag.flag == FlagName::Paused && flag.is_on(now) && scopes.contains(&flag.scope);
    flags.iter().find(holds)
}

impl Syncs {
    /// Lists feeds that are down or paused.
    pub(super) async fn unavailable_feeds(&self) -> Result<Vec<String>, Error> {
        let store = self.engine.store();
        let feeds = store.feeds().await?;
        let flags = store.flags().await?;
        let quiet = |circuit| matches!(circuit, Circuit::Closed { .. });
        if flags.is_empty() && feeds.iter().all(|feed| quiet(circuit_of(feed))) {
            return Ok(Vec::new());
        }
        let now = store.now(self.now()).await?;
        let mut unavailable = Vec::new();
        for feed in feeds {
            let circuit = circuit_of(&feed);
            // A feed that has been down for too long is not listed, so that its partitions can fail.
            let waits = matches!(circuit.admit(now, &self.settings.circuit), Admission::Wait(_))
                && !circuit.open_since().is_some_and(|since| self.exceeds_outage_limit(since, now));
            if waits || pause_of(&flags, &feed.feed, now).is_some() {
                unavailable.push(feed.feed.feed);
            }
        }
        Ok(unavailable)
    }

    /// Waits until the feed of a run is resumed. Refused if the run ends meanwhile. Does not wait for the feed of
    /// another project, because the wait would reveal its pause.
    pub(super) async fn until_resumed(&self, feed: &str, claim: &Claim) -> Result<(), Error> {
        let (store, run) = (self.engine.store(), &claim.run_id);
        let mut guard = None;
        loop {
            let feed = store.feed(feed.to_owned()).await?.feed;
            if feed.project_id != claim.project_id {
                return Ok(());
            }
            let now = store.now(self.now()).await?;
            if pause_of(&store.flags().await?, &feed, now).is_none() {
                return Ok(());
            }
            if store.run(run.clone()).await?.is_none_or(|run| run.status.is_terminal()) {
                let message = format!("run {run} ended while its feed was paused");
                return Err(Error::refused(RefusalCode::Stale, message));
            }
            // A paused feed must not keep the scheduler from planning others.
            guard.get_or_insert_with(|| self.feeds.wait_for(&feed.feed));
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}
