//! Feeds.

use crate::{Client, Error, part, query};
use http::Method;
use tidemill_core::project::Flag;
use tidemill_core::records::{FeedRecord, Gap, Reject};
use tidemill_core::run::Queued;
use tidemill_wire::Page;
use tidemill_wire::feeds::{
    FeedDetail, FeedLine, Heatmap, ListGaps, ListRejects, PutFeed, SetWatermark, StartSync, WatermarkNow,
};
use tidemill_wire::projects::{Pause, Resumed};
use tidemill_wire::rules::{Reprice, RepricedSome};

impl Client {
    /// Feeds, with the last sync of each.
    pub async fn feeds(&self) -> Result<Page<FeedLine>, Error> {
        self.get("/v1/feeds".to_owned()).await
    }

    /// A feed with its last syncs, its open gaps and how its watermark moved.
    pub async fn feed(&self, feed: &str) -> Result<FeedDetail, Error> {
        self.get(format!("/v1/feeds/{}", part(feed))).await
    }

    /// Adds a feed, or changes how it is reached.
    pub async fn put_feed(&self, feed: &str, put: &PutFeed) -> Result<FeedRecord, Error> {
        self.ask(Method::PUT, format!("/v1/feeds/{}", part(feed)), Some(put), None).await
    }

    /// Queues a sync of a feed. The same key and the same request give the run that exists.
    pub async fn start_sync(
        &self,
        feed: &str,
        start: StartSync,
        idempotency_key: Option<String>,
    ) -> Result<Queued, Error> {
        let path = format!("/v1/feeds/{}/syncs", part(feed));
        self.ask(Method::POST, path, Some(&start), idempotency_key).await
    }

    /// Brings nothing of a feed in.
    pub async fn pause_feed(&self, feed: &str, pause: &Pause) -> Result<Flag, Error> {
        self.post(format!("/v1/feeds/{}/pause", part(feed)), pause).await
    }

    /// Lets a feed go on.
    pub async fn resume_feed(&self, feed: &str) -> Result<Resumed, Error> {
        self.ask(Method::POST, format!("/v1/feeds/{}/resume", part(feed)), None::<&()>, None).await
    }

    /// How far a feed is consolidated, and how that came to be.
    pub async fn watermark(&self, feed: &str) -> Result<WatermarkNow, Error> {
        self.get(format!("/v1/feeds/{}/watermark", part(feed))).await
    }

    /// Moves a feed's watermark, with the reason on record.
    pub async fn set_watermark(&self, feed: &str, set: &SetWatermark) -> Result<WatermarkNow, Error> {
        self.ask(Method::PUT, format!("/v1/feeds/{}/watermark", part(feed)), Some(set), None).await
    }

    /// What the last scan of a feed counted, and what became of it.
    pub async fn heatmap(&self, feed: &str) -> Result<Heatmap, Error> {
        self.get(format!("/v1/feeds/{}/heatmap", part(feed))).await
    }

    /// Prices some stones of a feed by the rules as they stand when it begins. Asked again with what `next` says, it
    /// goes on.
    pub async fn reprice(&self, feed: &str, asked: &Reprice) -> Result<RepricedSome, Error> {
        let path = format!("/v1/feeds/{}/reprice{}", part(feed), query(asked)?);
        self.ask(Method::POST, path, None::<&()>, None).await
    }

    /// Records that are not in the table, and why.
    pub async fn rejects(&self, asked: &ListRejects) -> Result<Page<Reject>, Error> {
        self.get(format!("/v1/rejects{}", query(asked)?)).await
    }

    /// Ranges that a watermark passed without covering them.
    pub async fn gaps(&self, asked: &ListGaps) -> Result<Page<Gap>, Error> {
        self.get(format!("/v1/gaps{}", query(asked)?)).await
    }
}
