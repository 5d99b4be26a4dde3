//! API calls that manage feeds.

use crate::{Client, Error, path_segment, query};
use http::Method;
use tidemill_core::project::Flag;
use tidemill_core::records::{FeedRecord, FeedTablePlan, Gap, Reject};
use tidemill_core::run::QueueOutcome;
use tidemill_wire::Page;
use tidemill_wire::feeds::{
    FeedDetail, FeedSummary, Heatmap, ListGaps, ListRejects, PutFeed, SetWatermark, StartSync,
    WatermarkDetail,
};
use tidemill_wire::projects::{Pause, ResumeResponse};
use tidemill_wire::rules::{Reprice, RepriceResponse};

impl Client {
    /// Lists feeds, each with its last sync.
    pub async fn feeds(&self) -> Result<Page<FeedSummary>, Error> {
        self.get("/v1/feeds".to_owned()).await
    }

    /// Returns a feed with its last syncs, open gaps and watermark history.
    pub async fn feed(&self, feed: &str) -> Result<FeedDetail, Error> {
        self.get(format!("/v1/feeds/{}", path_segment(feed))).await
    }

    /// Adds a feed or changes its connection settings.
    pub async fn put_feed(&self, feed: &str, put: &PutFeed) -> Result<FeedRecord, Error> {
        self.request(Method::PUT, format!("/v1/feeds/{}", path_segment(feed)), Some(put), None).await
    }

    /// Returns the table that a feed would have with these settings. Changes nothing.
    pub async fn plan_feed(&self, feed: &str, put: &PutFeed) -> Result<FeedTablePlan, Error> {
        self.post(format!("/v1/feeds/{}/plan", path_segment(feed)), put).await
    }

    /// Returns the table of a feed with a definition.
    pub async fn feed_table(&self, feed: &str) -> Result<FeedTablePlan, Error> {
        self.get(format!("/v1/feeds/{}/table", path_segment(feed))).await
    }

    /// Creates or extends the table of a feed with a definition.
    pub async fn create_feed_table(&self, feed: &str) -> Result<FeedTablePlan, Error> {
        let path = format!("/v1/feeds/{}/table", path_segment(feed));
        self.request(Method::POST, path, None::<&()>, None).await
    }

    /// Queues a sync of a feed. A repeated request with the same key returns the existing run.
    pub async fn start_sync(
        &self,
        feed: &str,
        start: StartSync,
        idempotency_key: Option<String>,
    ) -> Result<QueueOutcome, Error> {
        let path = format!("/v1/feeds/{}/syncs", path_segment(feed));
        self.request(Method::POST, path, Some(&start), idempotency_key).await
    }

    /// Pauses all syncs of a feed.
    pub async fn pause_feed(&self, feed: &str, pause: &Pause) -> Result<Flag, Error> {
        self.post(format!("/v1/feeds/{}/pause", path_segment(feed)), pause).await
    }

    /// Resumes the syncs of a feed.
    pub async fn resume_feed(&self, feed: &str) -> Result<ResumeResponse, Error> {
        self.request(Method::POST, format!("/v1/feeds/{}/resume", path_segment(feed)), None::<&()>, None)
            .await
    }

    /// Returns a feed's watermark and its history.
    pub async fn watermark(&self, feed: &str) -> Result<WatermarkDetail, Error> {
        self.get(format!("/v1/feeds/{}/watermark", path_segment(feed))).await
    }

    /// Moves a feed's watermark and records the reason.
    pub async fn set_watermark(&self, feed: &str, set: &SetWatermark) -> Result<WatermarkDetail, Error> {
        self.request(Method::PUT, format!("/v1/feeds/{}/watermark", path_segment(feed)), Some(set), None)
            .await
    }

    /// Returns the counts of a feed's last scan and the state of their partitions.
    pub async fn heatmap(&self, feed: &str) -> Result<Heatmap, Error> {
        self.get(format!("/v1/feeds/{}/heatmap", path_segment(feed))).await
    }

    /// Builds a batch of a feed's rows again from stored records, with the rules in force when the pass began. Call it
    /// again with the returned `next` to continue.
    pub async fn reprice(&self, feed: &str, params: &Reprice) -> Result<RepriceResponse, Error> {
        let path = format!("/v1/feeds/{}/reprice{}", path_segment(feed), query(params)?);
        self.request(Method::POST, path, None::<&()>, None).await
    }

    /// Lists rejected records with the reasons.
    pub async fn rejects(&self, params: &ListRejects) -> Result<Page<Reject>, Error> {
        self.get(format!("/v1/rejects{}", query(params)?)).await
    }

    /// Lists ranges that a watermark passed without covering them.
    pub async fn gaps(&self, params: &ListGaps) -> Result<Page<Gap>, Error> {
        self.get(format!("/v1/gaps{}", query(params)?)).await
    }
}
