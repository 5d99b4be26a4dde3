//! Syncs: list, show, retry, cancel, consolidate; rejected rows and gaps.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use std::str::FromStr;
use tidemill_core::pace::Pace;
use tidemill_core::records::{Consolidated, Gap, Partition, Reject, RetriedSync, Sync, SyncStatus};
use tidemill_store::{GapFilter, RejectFilter, RejectPlace, SyncFilter};
use tidemill_wire::Page;
use tidemill_wire::feeds::{ListGaps, ListRejects};
use tidemill_wire::syncs::{CancelSync, Consolidate, ListSyncs, RetrySync, SyncCancelled};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/syncs", Allowed::Look, list)
            .says("syncs", "List syncs, the newest first")
            .query::<ListSyncs>()
            .answers::<Page<Sync>>(200, "One page of syncs"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}", Allowed::Look, one)
            .says("syncs", "Show a sync with its partitions; the id of its last attempt will do as well")
            .answers::<SyncStatus>(200, "The sync"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}/partitions", Allowed::Look, partitions)
            .says("syncs", "List the partitions of a sync, by price")
            .answers::<Page<Partition>>(200, "The partitions"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}/pace", Allowed::Look, pace)
            .says("syncs", "Show how many stones a sync stored, interval by interval, from its first page on")
            .answers::<Pace>(200, "The pace, in a bounded number of intervals"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/retry", Allowed::Operate, retry)
            .says("syncs", "Queue another try of a failed sync; only what failed is read again")
            .body::<RetrySync>()
            .answers::<RetriedSync>(200, "The next try; asked twice, it is one"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/cancel", Allowed::Operate, cancel)
            .says("syncs", "Stop a sync; pages in hand change nothing more")
            .body::<CancelSync>()
            .answers::<SyncCancelled>(200, "What was done"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/consolidate", Allowed::Operate, consolidate)
            .says("syncs", "Consolidate a sync that failed: the rest of it, or by force what there is")
            .body::<Consolidate>()
            .answers::<Consolidated>(200, "What was ordered"),
        Endpoint::new(Method::GET, "/v1/rejects", Allowed::Look, rejects)
            .says("syncs", "List records that are not in the table, and why, the newest first")
            .query::<ListRejects>()
            .answers::<Page<Reject>>(200, "One page of rejected records"),
        Endpoint::new(Method::GET, "/v1/gaps", Allowed::Look, gaps)
            .says("syncs", "List ranges that the watermark passed without covering them, the oldest first")
            .query::<ListGaps>()
            .answers::<Page<Gap>>(200, "One page of gaps"),
    ]
}

/// A sync as it stands in a path: its own id, or that of an attempt.
struct SyncName(String);

impl FromStr for SyncName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err("it is not the id of a sync, nor that of a run") }
    }
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListSyncs>,
) -> Result<Json<Page<Sync>>, Fail> {
    let limit = rows(asked.limit)?;
    caller.known_feed(&app, asked.feed.as_deref()).await?;
    let filter = SyncFilter { feed: asked.feed, project: caller.project.clone(), before: asked.after, limit };
    let items = app.engine().store().list_syncs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|sync| sync.run_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<SyncStatus>, Fail> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().status(&sync.run_id.to_string()).await?))
}

async fn partitions(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<Page<Partition>>, Fail> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(Page::whole(app.engine().store().partitions(sync.run_id).await?)))
}

async fn pace(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<Pace>, Fail> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(app.engine().store().pace(sync.run_id).await?))
}

async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(retry): Body<RetrySync>,
) -> Result<Json<RetriedSync>, Fail> {
    caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().retry_sync(&id, retry.restart, retry.partition, &caller.name).await?))
}

async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(cancel): Body<CancelSync>,
) -> Result<Json<SyncCancelled>, Fail> {
    let sync = caller.sync(&app, &id).await?;
    let cancelled = app.syncs().cancel_sync(&id, &caller.name, cancel.reason.as_deref()).await?;
    Ok(Json(SyncCancelled { sync: sync.run_id, cancelled }))
}

async fn consolidate(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(order): Body<Consolidate>,
) -> Result<Json<Consolidated>, Fail> {
    caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().consolidate_sync(&id, order.force, order.advance, &caller.name).await?))
}

async fn rejects(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListRejects>,
) -> Result<Json<Page<Reject>>, Fail> {
    let limit = rows(asked.limit)?;
    caller.known_feed(&app, asked.feed.as_deref()).await?;
    let after = asked.after.as_deref().map(cursor::read).transpose()?;
    let after = after.map(|(last_at, feed, stone_id)| RejectPlace { last_at, feed, stone_id });
    let filter = RejectFilter { feed: asked.feed, project: caller.project.clone(), after, limit };
    let items = app.engine().store().list_rejects(filter).await?;
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|reject| cursor::write(&(reject.last_at, &reject.feed, &reject.stone_id)));
    Ok(Json(Page { items, next }))
}

async fn gaps(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListGaps>,
) -> Result<Json<Page<Gap>>, Fail> {
    let limit = rows(asked.limit)?;
    caller.known_feed(&app, asked.feed.as_deref()).await?;
    let filter = GapFilter {
        feed: asked.feed,
        closed: asked.all.unwrap_or(false),
        project: caller.project.clone(),
        after: asked.after.unwrap_or(0),
        limit,
    };
    let items = app.engine().store().list_gaps(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|gap| gap.gap_id.to_string());
    Ok(Json(Page { items, next }))
}
