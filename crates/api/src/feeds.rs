//! VisibleFeeds: configuration, syncs, pauses, watermarks and repricing.

mod definition;

use crate::access::{Caller, invisible_project};
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, IdempotencyKey, Query, ValidBody};
use crate::flags;
use crate::scope::{Name, name_taken_error};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::limits::REPRICE_STONES_MAX;
use tidemill_core::project::{Flag, FlagName};
use tidemill_core::records::FeedRecord;
use tidemill_core::run::QueueOutcome;
use tidemill_engine::sync::{RepriceCursor, full_schedule_name, schedule_name};
use tidemill_wire::feeds::{
    FeedDetail, FeedSummary, Heatmap, PutFeed, SetWatermark, StartSync, WatermarkDetail,
};
use tidemill_wire::projects::{Pause, ResumeResponse};
use tidemill_wire::rules::{Reprice, RepriceResponse};
use tidemill_wire::{FieldError, Page};

/// Number of recent syncs and watermark changes in the details of a feed.
const RECENT: usize = 5;
/// Number of changes in a watermark response.
const WATERMARK_CHANGES: usize = 10;
/// Number of recent syncs that are searched for one that read records.
const SYNCS_SEARCHED: usize = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = vec![
        Endpoint::new(Method::GET, "/v1/feeds", Permission::Read, list)
            .describe("feeds", "List feeds, each with its last sync")
            .responds::<Page<FeedSummary>>(200, "The feeds"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}", Permission::Read, one)
            .describe("feeds", "Show a feed with its last syncs, open gaps and watermark history")
            .responds::<FeedDetail>(200, "The feed"),
        Endpoint::new(Method::PUT, "/v1/feeds/{feed}", Permission::Admin, put)
            .describe(
                "feeds",
                "Add a feed or change its settings; secrets are given as the names of variables",
            )
            .body::<PutFeed>()
            .body_limit(definition::BODY_BYTES_MAX)
            .responds::<FeedRecord>(200, "The feed"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/syncs", Permission::Operate, sync)
            .describe("feeds", "Queue a sync of a feed")
            .body::<StartSync>()
            .keyed()
            .responds::<QueueOutcome>(201, "The sync's run was queued")
            .responds::<QueueOutcome>(200, "The existing run of a repeated request with the same key"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/pause", Permission::Operate, pause)
            .describe("feeds", "Pause a feed; pages in progress are completed")
            .body::<Pause>()
            .responds::<Flag>(200, "The flag that pauses the feed"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/resume", Permission::Operate, resume)
            .describe("feeds", "Resume a feed")
            .responds::<ResumeResponse>(200, "Whether the feed was paused"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}/watermark", Permission::Read, watermark)
            .describe("feeds", "Show a feed's watermark and its history")
            .responds::<WatermarkDetail>(200, "The watermark"),
        Endpoint::new(Method::PUT, "/v1/feeds/{feed}/watermark", Permission::Operate, set_watermark)
            .describe("feeds", "Move a feed's watermark and record the reason")
            .body::<SetWatermark>()
            .responds::<WatermarkDetail>(200, "The watermark"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}/heatmap", Permission::Read, heatmap)
            .describe("feeds", "Show the counts of a feed's last scan and the state of its partitions")
            .responds::<Heatmap>(200, "The heatmap"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/reprice", Permission::Operate, reprice)
            .describe(
                "rules",
                "Build a batch of a feed's rows again from stored records, with the current rules or definition",
            )
            .query::<Reprice>()
            .responds::<RepriceResponse>(200, "The number of rows that were built, and `next` if there are more"),
    ];
    endpoints.extend(definition::endpoints());
    endpoints
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<FeedSummary>>, ApiError> {
    let store = app.engine().store();
    let mut lines = Vec::new();
    for feed in store.feeds().await?.into_iter().filter(|feed| caller.can_see(&feed.feed.project_id)) {
        let last = store.syncs(Some(feed.feed.feed.clone()), 1).await?;
        lines.push(FeedSummary { feed, last_sync: last.into_iter().next() });
    }
    Ok(Json(Page::complete(lines)))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<FeedDetail>, ApiError> {
    let feed = caller.feed(&app, &name).await?;
    let store = app.engine().store();
    let syncs = store.syncs(Some(name.clone()), RECENT).await?;
    let gaps = store.gaps(Some(name.clone()), false).await?;
    let watermark_changes = store.watermark_changes(name, RECENT).await?;
    Ok(Json(FeedDetail { feed, syncs, gaps, watermark_changes }))
}

/// Checks that the caller may use the names of a feed and of its schedules.
async fn check_may_put(app: &App, caller: &Caller, name: &str, put: &PutFeed) -> Result<(), ApiError> {
    if !caller.can_see(&put.project_id) {
        return Err(invisible_project(&put.project_id));
    }
    let store = app.engine().store();
    let before = store.feeds().await?.into_iter().find(|feed| feed.feed.feed == name);
    if before.is_some_and(|feed| !caller.can_see(&feed.feed.project_id)) {
        return Err(name_taken_error("the feed", name));
    }
    let incremental = put.schedule.is_some().then(|| schedule_name(name));
    let full = put.full_schedule.is_some().then(|| full_schedule_name(name));
    for schedule in incremental.into_iter().chain(full) {
        // The feed's schedules are named after it and must not replace those of another project.
        let before = store.schedules(Some(schedule.clone())).await?;
        if before.iter().any(|schedule| !caller.can_see(&schedule.project_id)) {
            return Err(name_taken_error("the schedule", &schedule));
        }
    }
    Ok(())
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    ValidBody(put): ValidBody<PutFeed>,
) -> Result<Json<FeedRecord>, ApiError> {
    check_may_put(&app, &caller, &name, &put).await?;
    let change = definition::change_of(&app, name, put).await?;
    Ok(Json(app.syncs().put_feed(change).await?))
}

async fn sync(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    IdempotencyKey(key): IdempotencyKey,
    Body(start): Body<StartSync>,
) -> Result<(StatusCode, Json<QueueOutcome>), ApiError> {
    caller.feed(&app, &name).await?;
    let queued = app.syncs().start(&name, start.full, key).await?;
    let status = if queued.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(queued)))
}

/// The scope of a feed's flags.
fn scope(feed: &str) -> String {
    format!("feed:{feed}")
}

async fn pause(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Body(pause): Body<Pause>,
) -> Result<Json<Flag>, ApiError> {
    caller.feed(&app, &name).await?;
    flags::set_flag(&app, &caller, FlagName::Paused, scope(&name), pause).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<ResumeResponse>, ApiError> {
    caller.feed(&app, &name).await?;
    flags::clear_flag(&app, FlagName::Paused, scope(&name)).await.map(Json)
}

async fn watermark_response(app: &App, feed: FeedRecord) -> Result<Json<WatermarkDetail>, ApiError> {
    let changes = app.engine().store().watermark_changes(feed.feed.feed, WATERMARK_CHANGES).await?;
    Ok(Json(WatermarkDetail { watermark: feed.watermark, changes }))
}

async fn watermark(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<WatermarkDetail>, ApiError> {
    let feed = caller.feed(&app, &name).await?;
    watermark_response(&app, feed).await
}

async fn set_watermark(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Body(set): Body<SetWatermark>,
) -> Result<Json<WatermarkDetail>, ApiError> {
    caller.feed(&app, &name).await?;
    let feed = app.syncs().set_watermark(&name, set.watermark, &caller.name, set.note).await?;
    watermark_response(&app, feed).await
}

async fn heatmap(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Heatmap>, ApiError> {
    caller.feed(&app, &name).await?;
    let store = app.engine().store();
    // A sync that found no records has no heatmap.
    let last = store.syncs(Some(name.clone()), SYNCS_SEARCHED).await?;
    let Some(sync) = last.into_iter().find(|sync| sync.expected_workers > 0) else {
        let message = format!("feed {name} has no completed scan");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "nothing_yet", message)
            .hint(format!("tidemill feed sync {name}")));
    };
    let partitions = store.partitions(sync.run_id).await?;
    Ok(Json(Heatmap {
        sync: sync.run_id,
        predicted: sync.predicted,
        count_calls: sync.count_calls,
        cells: sync.heatmap,
        partitions,
    }))
}

async fn reprice(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Query(params): Query<Reprice>,
) -> Result<Json<RepriceResponse>, ApiError> {
    let limit = params.limit.unwrap_or(REPRICE_STONES_MAX);
    if !(1..=REPRICE_STONES_MAX).contains(&limit) {
        let problem = format!("is {limit}; it must be between 1 and {REPRICE_STONES_MAX}");
        return Err(ApiError::invalid(vec![FieldError { field: "limit".to_owned(), problem }]));
    }
    let from: Option<(i32, String)> = params.after.as_deref().map(cursor::decode).transpose()?;
    caller.feed(&app, &name).await?;
    let from = from.map(|(rules_version, after)| RepriceCursor { rules_version, after });
    let (done, next) = app.syncs().apply_some_rules(&name, from, limit.into()).await?;
    Ok(Json(RepriceResponse {
        rules_version: done.rules_version,
        stones: done.stones,
        rejected: done.rejected,
        next: next.map(|place| cursor::encode(&(place.rules_version, place.after))),
    }))
}
