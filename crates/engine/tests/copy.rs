//! The copy of a watermark: in a local file on both stores, and in S3 and Azure with real servers.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "copy/local.rs"]
mod local;
#[path = "copy/remote.rs"]
mod remote;

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::feed::{Feed, Watermark};
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::{FeedRecord, WatermarkChange};
use tidemill_engine::clock::Clock;
use tidemill_engine::sync::{FeedChange, SyncSettings, Syncs};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_testkit::interface::{Fixture, Kind, at};
use uuid::Uuid;

const FEED: &str = "nivoda";

/// Start time of the tests. It is later than their watermarks, because a future watermark is refused.
const START_SECS: i64 = 200_000;

/// A feed whose watermark is copied, on a database of its own, with a clock that the test moves.
#[derive(Clone)]
struct CopyFixture {
    base: Fixture,
    clock: Clock,
    syncs: Arc<Syncs>,
}

impl CopyFixture {
    async fn open(kind: Kind, copy_url: &str) -> Self {
        let base = Fixture::open_bare(kind).await;
        let clock = Clock::fixed(at(START_SECS));
        let fixture = Self { syncs: Arc::new(syncs(&base, &clock)), base, clock };
        fixture.syncs.put_feed(feed(copy_url)).await.expect("the feed is added");
        fixture
    }

    /// Returns the sync operations of another process on the same data.
    fn second_process(&self) -> Syncs {
        syncs(&self.base, &self.clock)
    }

    /// Moves the watermark like a person.
    async fn set(&self, secs: i64) -> Watermark {
        // The history of a watermark has one change per instant.
        self.clock.advance(TimeDelta::milliseconds(1));
        let watermark =
            Watermark { last_updated_at: at(secs), last_run_id: None, last_run_completed_at: None };
        let set = self.syncs.set_watermark(FEED, Some(watermark), "test", None).await;
        set.expect("the watermark is moved").watermark.expect("there is one")
    }

    /// Moves the watermark like the transaction that completes a sync.
    async fn complete(&self, run_id: Uuid, secs: i64) {
        let (after, now) = (Some(at(secs)), Some(at(secs + 1)));
        let change = WatermarkChange {
            changed_at: at(secs + 1),
            before: None,
            after,
            run_id: Some(run_id),
            by: "test".to_owned(),
            note: None,
        };
        let step = self
            .base
            .store
            .write(move |mut tx| Box::pin(async move { tx.set_watermark(FEED, &change, now).await }));
        step.await.expect("the watermark is moved");
    }

    async fn copy(&self) -> u64 {
        self.syncs.copy_watermarks().await.expect("the database answers")
    }

    fn advance(&self, secs: i64) {
        self.clock.advance(TimeDelta::seconds(secs));
    }

    async fn record(&self) -> FeedRecord {
        self.base.store.feed(FEED.to_owned()).await.expect("the feed is read")
    }

    /// Returns the error of the last copy.
    async fn fault(&self) -> String {
        self.record().await.copy_error.expect("the copy has failed")
    }
}

fn syncs(base: &Fixture, clock: &Clock) -> Syncs {
    let engine = Engine::new(base.store.clone(), clock.clone(), RetryPolicy::None);
    Syncs::new(engine, SyncSettings::default())
}

fn feed(copy_url: &str) -> FeedChange {
    let feed = Feed {
        feed: FEED.to_owned(),
        project_id: "default".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: "http://127.0.0.1:9/api/diamonds".to_owned(),
        username: Some("tester".to_owned()),
        password_env: Some("PATH".to_owned()),
        rate: 25,
        settings: json!({}),
        defined_by: DefinedBy::Operator,
        created_at: at(0),
    };
    let copy_url = Some(copy_url.to_owned());
    FeedChange {
        feed,
        definition: None,
        copy_url,
        schedule: None,
        full_schedule: None,
        time_zone: "UTC".to_owned(),
    }
}

/// Returns the text of a copy with a watermark that this database never had.
fn foreign(secs: i64) -> String {
    let watermark = Watermark { last_updated_at: at(secs), last_run_id: None, last_run_completed_at: None };
    serde_json::to_string(&watermark).expect("a watermark is JSON")
}
