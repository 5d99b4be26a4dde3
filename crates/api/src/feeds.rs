//! Feeds: add, look, bring in, pause, and their watermarks.

use crate::access::{Caller, hidden_project};
use crate::answer::Fail;
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Checked, Id, IdempotencyKey, Query};
use crate::flags;
use crate::scope::{Name, taken};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::feed::Feed;
use tidemill_core::limits::REPRICE_STONES_MAX;
use tidemill_core::project::{Flag, FlagName};
use tidemill_core::records::FeedRecord;
use tidemill_core::run::Queued;
use tidemill_engine::sync::{FeedChange, RepricePlace, full_schedule_name, schedule_name};
use tidemill_wire::feeds::{FeedDetail, FeedLine, Heatmap, PutFeed, SetWatermark, StartSync, WatermarkNow};
use tidemill_wire::projects::{Pause, Resumed};
use tidemill_wire::rules::{Reprice, RepricedSome};
use tidemill_wire::{Fault, Page};

/// Syncs and changes of the watermark that a feed is shown with.
const LATELY: usize = 5;
/// Changes that a watermark is shown with.
const CHANGES: usize = 10;
/// Syncs among which the last one that read something is looked for.
const SYNCS: usize = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/feeds", Allowed::Look, list)
            .says("feeds", "List feeds, with the last sync of each")
            .answers::<Page<FeedLine>>(200, "The feeds"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}", Allowed::Look, one)
            .says("feeds", "Show a feed with its last syncs, its open gaps and how its watermark moved")
            .answers::<FeedDetail>(200, "The feed"),
        Endpoint::new(Method::PUT, "/v1/feeds/{feed}", Allowed::Admin, put)
            .says("feeds", "Add a feed, or change how it is reached; a password is named by its variable")
            .body::<PutFeed>()
            .answers::<FeedRecord>(200, "The feed"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/syncs", Allowed::Operate, sync)
            .says("feeds", "Queue a sync of a feed")
            .body::<StartSync>()
            .keyed()
            .answers::<Queued>(201, "The run of the sync was queued")
            .answers::<Queued>(200, "The key was used before for the same request: that run"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/pause", Allowed::Operate, pause)
            .says("feeds", "Bring nothing of a feed in; pages in hand go on")
            .body::<Pause>()
            .answers::<Flag>(200, "The flag that holds it"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/resume", Allowed::Operate, resume)
            .says("feeds", "Let a feed go on")
            .answers::<Resumed>(200, "Whether it was paused"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}/watermark", Allowed::Look, watermark)
            .says("feeds", "Say how far a feed is consolidated, and how that came to be")
            .answers::<WatermarkNow>(200, "The watermark"),
        Endpoint::new(Method::PUT, "/v1/feeds/{feed}/watermark", Allowed::Operate, set_watermark)
            .says("feeds", "Move a feed's watermark, with the reason on record")
            .body::<SetWatermark>()
            .answers::<WatermarkNow>(200, "The watermark"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}/heatmap", Allowed::Look, heatmap)
            .says("feeds", "Show what the last scan of a feed counted, and what became of it")
            .answers::<Heatmap>(200, "The scan"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/reprice", Allowed::Operate, reprice)
            .says(
                "rules",
                "Price stones of a feed by the rules as they stand now, without fetching anything; some at a time",
            )
            .query::<Reprice>()
            .answers::<RepricedSome>(200, "What was priced again, and where to go on, unless that was all"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<FeedLine>>, Fail> {
    let store = app.engine().store();
    let mut lines = Vec::new();
    for feed in store.feeds().await?.into_iter().filter(|feed| caller.sees(&feed.feed.project_id)) {
        let last = store.syncs(Some(feed.feed.feed.clone()), 1).await?;
        lines.push(FeedLine { feed, last_sync: last.into_iter().next() });
    }
    Ok(Json(Page::whole(lines)))
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<FeedDetail>, Fail> {
    let feed = caller.feed(&app, &name).await?;
    let store = app.engine().store();
    let syncs = store.syncs(Some(name.clone()), LATELY).await?;
    let gaps = store.gaps(Some(name.clone()), false).await?;
    let watermark_changes = store.watermark_changes(name, LATELY).await?;
    Ok(Json(FeedDetail { feed, syncs, gaps, watermark_changes }))
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Checked(put): Checked<PutFeed>,
) -> Result<Json<FeedRecord>, Fail> {
    if !caller.sees(&put.project_id) {
        return Err(hidden_project(&put.project_id));
    }
    let engine = app.engine();
    let before = engine.store().feeds().await?.into_iter().find(|feed| feed.feed.feed == name);
    if before.is_some_and(|feed| !caller.sees(&feed.feed.project_id)) {
        return Err(taken("the feed", &name));
    }
    let of_changes = put.schedule.is_some().then(|| schedule_name(&name));
    let of_all = put.full_schedule.is_some().then(|| full_schedule_name(&name));
    for schedule in of_changes.into_iter().chain(of_all) {
        // Its schedules are named after it, and must not take the place of another project's.
        let before = engine.store().schedules(Some(schedule.clone())).await?;
        if before.iter().any(|schedule| !caller.sees(&schedule.project_id)) {
            return Err(taken("the schedule", &schedule));
        }
    }
    let feed = Feed {
        feed: name,
        project_id: put.project_id,
        kind: put.kind,
        endpoint: put.endpoint,
        username: put.username,
        password_env: put.password_env,
        rate: put.rate,
        settings: put.settings,
        created_at: engine.store().now(engine.clock().now()).await?,
    };
    let change = FeedChange {
        feed,
        copy_url: put.copy_url,
        schedule: put.schedule,
        full_schedule: put.full_schedule,
        time_zone: put.time_zone,
    };
    Ok(Json(app.syncs().put_feed(change).await?))
}

async fn sync(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    IdempotencyKey(key): IdempotencyKey,
    Body(start): Body<StartSync>,
) -> Result<(StatusCode, Json<Queued>), Fail> {
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
) -> Result<Json<Flag>, Fail> {
    caller.feed(&app, &name).await?;
    flags::switch_on(&app, &caller, FlagName::Paused, scope(&name), pause).await.map(Json)
}

async fn resume(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Resumed>, Fail> {
    caller.feed(&app, &name).await?;
    flags::switch_off(&app, FlagName::Paused, scope(&name)).await.map(Json)
}

async fn now(app: &App, feed: FeedRecord) -> Result<Json<WatermarkNow>, Fail> {
    let changes = app.engine().store().watermark_changes(feed.feed.feed, CHANGES).await?;
    Ok(Json(WatermarkNow { watermark: feed.watermark, changes }))
}

async fn watermark(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<WatermarkNow>, Fail> {
    let feed = caller.feed(&app, &name).await?;
    now(&app, feed).await
}

async fn set_watermark(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Body(set): Body<SetWatermark>,
) -> Result<Json<WatermarkNow>, Fail> {
    caller.feed(&app, &name).await?;
    let feed = app.syncs().set_watermark(&name, set.watermark, &caller.name, set.note).await?;
    now(&app, feed).await
}

async fn heatmap(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<Heatmap>, Fail> {
    caller.feed(&app, &name).await?;
    let store = app.engine().store();
    // One that found nothing to read has nothing to show.
    let last = store.syncs(Some(name.clone()), SYNCS).await?;
    let Some(sync) = last.into_iter().find(|sync| sync.expected_workers > 0) else {
        let message = format!("nothing of feed {name} was ever brought in");
        return Err(Fail::new(StatusCode::NOT_FOUND, "nothing_yet", message)
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
    Query(asked): Query<Reprice>,
) -> Result<Json<RepricedSome>, Fail> {
    let limit = asked.limit.unwrap_or(REPRICE_STONES_MAX);
    if !(1..=REPRICE_STONES_MAX).contains(&limit) {
        let problem = format!("is {limit}; it must be between 1 and {REPRICE_STONES_MAX}");
        return Err(Fail::invalid(vec![Fault { field: "limit".to_owned(), problem }]));
    }
    let from: Option<(i32, String)> = asked.after.as_deref().map(cursor::read).transpose()?;
    caller.feed(&app, &name).await?;
    let from = from.map(|(rules_version, after)| RepricePlace { rules_version, after });
    let (done, next) = app.syncs().apply_some_rules(&name, from, limit.into()).await?;
    Ok(Json(RepricedSome {
        rules_version: done.rules_version,
        stones: done.stones,
        rejected: done.rejected,
        next: next.map(|place| cursor::write(&(place.rules_version, place.after))),
    }))
}
