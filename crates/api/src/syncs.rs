//! Syncs: list, show, retry, cancel, consolidate; rejected records and gaps.

use crate::access::Caller;
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use std::str::FromStr;
use tidemill_core::pace::Pace;
use tidemill_core::records::{ConsolidationOrder, Gap, Partition, Reject, Sync, SyncRetry, SyncStatus};
use tidemill_store::{GapFilter, RejectFilter, RejectPosition, SyncFilter};
use tidemill_wire::Page;
use tidemill_wire::feeds::{ListGaps, ListRejects};
use tidemill_wire::syncs::{CancelSync, CancelSyncResponse, Consolidate, ListSyncs, RetrySync};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/syncs", Permission::Read, list)
            .describe("syncs", "List syncs, newest first")
            .query::<ListSyncs>()
            .responds::<Page<Sync>>(200, "One page of syncs"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}", Permission::Read, one)
            .describe("syncs", "Show a sync with its partitions, by its own id or the id of its last run")
            .responds::<SyncStatus>(200, "The sync"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}/partitions", Permission::Read, partitions)
            .describe("syncs", "List the partitions of a sync, by price")
            .responds::<Page<Partition>>(200, "The partitions"),
        Endpoint::new(Method::GET, "/v1/syncs/{sync}/pace", Permission::Read, pace)
            .describe(
                "syncs",
                "Show the number of records that a sync stored per interval, from its first page on",
            )
            .responds::<Pace>(200, "The counts, in a bounded number of intervals"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/retry", Permission::Operate, retry)
            .describe("syncs", "Queue a retry of a failed sync; only failed partitions are read again")
            .body::<RetrySync>()
            .responds::<SyncRetry>(200, "The retry; a repeated request returns the same one"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/cancel", Permission::Operate, cancel)
            .describe("syncs", "Cancel a sync; pages in progress have no further effect")
            .body::<CancelSync>()
            .responds::<CancelSyncResponse>(200, "The outcome of the cancellation"),
        Endpoint::new(Method::POST, "/v1/syncs/{sync}/consolidate", Permission::Operate, consolidate)
            .describe(
                "syncs",
                "Consolidate a failed sync: the remaining records or, with `force`, those fetched so far",
            )
            .body::<Consolidate>()
            .responds::<ConsolidationOrder>(200, "The queued consolidation"),
        Endpoint::new(Method::GET, "/v1/rejects", Permission::Read, rejects)
            .describe("syncs", "List rejected records with the reasons, newest first")
            .query::<ListRejects>()
            .responds::<Page<Reject>>(200, "One page of rejected records"),
        Endpoint::new(Method::GET, "/v1/gaps", Permission::Read, gaps)
            .describe("syncs", "List ranges that the watermark passed without covering them, oldest first")
            .query::<ListGaps>()
            .responds::<Page<Gap>>(200, "One page of gaps"),
    ]
}

/// Id of a sync or of one of its runs, in a path.
struct SyncName(String);

impl FromStr for SyncName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err("not a valid sync or run id") }
    }
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListSyncs>,
) -> Result<Json<Page<Sync>>, ApiError> {
    let limit = rows(params.limit)?;
    caller.check_feed(&app, params.feed.as_deref()).await?;
    let filter =
        SyncFilter { feed: params.feed, project: caller.own_project()?, before: params.after, limit };
    let items = app.engine().store().list_syncs(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|sync| sync.run_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<SyncStatus>, ApiError> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().status(&sync.run_id.to_string()).await?))
}

async fn partitions(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<Page<Partition>>, ApiError> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(Page::complete(app.engine().store().partitions(sync.run_id).await?)))
}

async fn pace(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
) -> Result<Json<Pace>, ApiError> {
    let sync = caller.sync(&app, &id).await?;
    Ok(Json(app.engine().store().pace(sync.run_id).await?))
}

async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(retry): Body<RetrySync>,
) -> Result<Json<SyncRetry>, ApiError> {
    caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().retry_sync(&id, retry.restart, retry.partition, &caller.name).await?))
}

async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(cancel): Body<CancelSync>,
) -> Result<Json<CancelSyncResponse>, ApiError> {
    let sync = caller.sync(&app, &id).await?;
    let cancelled = app.syncs().cancel_sync(&id, &caller.name, cancel.reason.as_deref()).await?;
    Ok(Json(CancelSyncResponse { sync: sync.run_id, cancelled }))
}

async fn consolidate(
    State(app): State<App>,
    caller: Caller,
    Id(SyncName(id)): Id<SyncName>,
    Body(order): Body<Consolidate>,
) -> Result<Json<ConsolidationOrder>, ApiError> {
    caller.sync(&app, &id).await?;
    Ok(Json(app.syncs().consolidate_sync(&id, order.force, order.advance, &caller.name).await?))
}

async fn rejects(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListRejects>,
) -> Result<Json<Page<Reject>>, ApiError> {
    let limit = rows(params.limit)?;
    caller.check_feed(&app, params.feed.as_deref()).await?;
    let after = params.after.as_deref().map(cursor::decode).transpose()?;
    let after = after.map(|(last_at, feed, record_id)| RejectPosition { last_at, feed, record_id });
    let filter = RejectFilter { feed: params.feed, project: caller.own_project()?, after, limit };
    let items = app.engine().store().list_rejects(filter).await?;
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|reject| cursor::encode(&(reject.last_at, &reject.feed, &reject.record_id)));
    Ok(Json(Page { items, next }))
}

async fn gaps(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListGaps>,
) -> Result<Json<Page<Gap>>, ApiError> {
    let limit = rows(params.limit)?;
    caller.check_feed(&app, params.feed.as_deref()).await?;
    let filter = GapFilter {
        feed: params.feed,
        closed: params.all.unwrap_or(false),
        project: caller.own_project()?,
        after: params.after.unwrap_or(0),
        limit,
    };
    let items = app.engine().store().list_gaps(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|gap| gap.gap_id.to_string());
    Ok(Json(Page { items, next }))
}
