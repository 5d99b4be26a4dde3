//! What people hold: a feed, its project, or the lane. Nothing of a feed that is held is planned or fetched, and what
//! waits for it does not grow old meanwhile.

use super::Syncs;
use super::circuit::circuit_of;
use std::time::Duration;
use tidemill_core::feed::Feed;
use tidemill_core::project::{Flag, FlagName, project_scope};
use tidemill_core::{RunId, Timestamp};
use tidemill_feeds::{Ask, Circuit};
use tidemill_store::{Error, RefusalCode};

/// The scope of flags that hold all syncs.
const SYNC_SCOPE: &str = "lane:sync";
/// Time between two looks at whether a feed is still held.
const LOOK: Duration = Duration::from_millis(500);

/// What holds a feed at `now`, if anything does.
pub(super) fn pause_of<'a>(flags: &'a [Flag], feed: &Feed, now: Timestamp) -> Option<&'a Flag> {
    let scopes = [format!("feed:{}", feed.feed), project_scope(&feed.project_id), SYNC_SCOPE.to_owned()];
    let holds =
        |flag: &&Flag| flag.flag == FlagName::Paused && flag.is_on(now) && scopes.contains(&flag.scope);
    flags.iter().find(holds)
}

impl Syncs {
    /// Feeds that are down or held.
    pub(super) async fn feeds_at_rest(&self) -> Result<Vec<String>, Error> {
        let store = self.engine.store();
        let feeds = store.feeds().await?;
        let flags = store.flags().await?;
        let quiet = |circuit| matches!(circuit, Circuit::Closed { .. });
        if flags.is_empty() && feeds.iter().all(|feed| quiet(circuit_of(feed))) {
            return Ok(Vec::new());
        }
        let now = store.now(self.now()).await?;
        let mut at_rest = Vec::new();
        for feed in feeds {
            let circuit = circuit_of(&feed);
            // A feed that has been down for too long is taken up again, so that its partitions can fail.
            let waits = matches!(circuit.ask(now, &self.settings.circuit), Ask::Wait(_))
                && !circuit.open_since().is_some_and(|since| self.is_over(since, now));
            if waits || pause_of(&flags, &feed.feed, now).is_some() {
                at_rest.push(feed.feed.feed);
            }
        }
        Ok(at_rest)
    }

    /// Waits until nobody holds a feed; refused when the run that waits for it has ended meanwhile.
    pub(super) async fn until_resumed(&self, feed: &str, run: &RunId) -> Result<(), Error> {
        let store = self.engine.store();
        let mut waits = None;
        loop {
            let feed = store.feed(feed.to_owned()).await?.feed;
            let now = store.now(self.now()).await?;
            if pause_of(&store.flags().await?, &feed, now).is_none() {
                return Ok(());
            }
            if store.run(run.clone()).await?.is_none_or(|run| run.status.is_terminal()) {
                let message = format!("run {run} has ended while its feed was paused");
                return Err(Error::refused(RefusalCode::Stale, message));
            }
            // Who waits here keeps nobody from planning another feed.
            waits.get_or_insert_with(|| self.feeds.wait_for(&feed.feed));
            tokio::time::sleep(LOOK).await;
        }
    }
}
