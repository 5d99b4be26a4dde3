//! Queues: depth, next messages, dead letters and their replay.
//!
//! The group of a message is a feed. A caller of one project only sees the messages of its own feeds.

use crate::access::Caller;
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, Query};
use crate::runs::rows;
use crate::scope::{Name, VisibleFeeds};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::{DeadLetter, Message, QueueDepth, QueueSettings, Replay};
use tidemill_core::sync::SyncState;
use tidemill_store::Queue as _;
use tidemill_wire::queues::{ListDead, Peek, QueueSummary, ReplayDead, ReplayResponse};
use tidemill_wire::{FieldError, Page};

/// Maximum number of syncs named in the hints of one response.
const HINTS_MAX: usize = 10;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/queues", Permission::Read, list)
            .describe("queues", "List queues with their depths and settings")
            .responds::<Page<QueueSummary>>(200, "The queues"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}", Permission::Read, one)
            .describe("queues", "Show a queue")
            .responds::<QueueSummary>(200, "The queue"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}/messages", Permission::Read, peek)
            .describe("queues", "List the next messages of a queue, including locked and delayed ones")
            .query::<Peek>()
            .responds::<Page<Message>>(200, "The messages; they stay in the queue"),
        Endpoint::new(Method::GET, "/v1/messages", Permission::Read, held)
            .describe("queues", "List the messages that workers hold, of all queues")
            .responds::<Page<Message>>(200, "The messages, ordered by worker"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}/dead", Permission::Read, dead)
            .describe("queues", "List dead letters, oldest first")
            .query::<ListDead>()
            .responds::<Page<DeadLetter>>(200, "One page of dead letters"),
        Endpoint::new(Method::POST, "/v1/queues/{queue}/replay", Permission::Operate, replay)
            .describe("queues", "Move dead letters back to their queue: one, some or all")
            .body::<ReplayDead>()
            .responds::<ReplayResponse>(
                200,
                "The number of replayed messages; repeating the request replays nothing twice",
            ),
    ]
}

/// Depth and settings of a queue, restricted to the feeds that the caller sees.
async fn queue_line(
    app: &App,
    feeds: &VisibleFeeds,
    settings: QueueSettings,
) -> Result<QueueSummary, ApiError> {
    let engine = app.engine();
    let mut depth = engine.store().depth(settings.queue.clone(), engine.clock().now()).await?;
    if let VisibleFeeds::OfProjects(_) = feeds {
        depth.groups.retain(|group| feeds.contains(&group.group));
        depth = QueueDepth::of(depth.groups);
    }
    Ok(QueueSummary { settings, depth })
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<QueueSummary>>, ApiError> {
    let feeds = caller.feeds(&app).await?;
    let mut lines = Vec::new();
    for settings in app.engine().store().queues().await? {
        lines.push(queue_line(&app, &feeds, settings).await?);
    }
    Ok(Json(Page::complete(lines)))
}

/// Returns an existing queue.
async fn existing_queue(app: &App, name: &str) -> Result<QueueSettings, ApiError> {
    let found = app.engine().store().queues().await?.into_iter().find(|settings| settings.queue == name);
    let message = || format!("queue `{name}` does not exist");
    found.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "unknown_queue", message()).hint("tidemill queue list")
    })
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<QueueSummary>, ApiError> {
    let settings = existing_queue(&app, &name).await?;
    queue_line(&app, &caller.feeds(&app).await?, settings).await.map(Json)
}

async fn peek(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Query(params): Query<Peek>,
) -> Result<Json<Page<Message>>, ApiError> {
    let limit = rows(params.limit)?;
    existing_queue(&app, &name).await?;
    let feeds = caller.feeds(&app).await?;
    let engine = app.engine();
    // Messages of other projects are filtered out of the first ones; the search does not go on behind them.
    let read_limit = match feeds {
        VisibleFeeds::All => limit,
        VisibleFeeds::OfProjects(_) => BATCH_MAX,
    };
    let mut messages = engine.store().peek(name, read_limit, engine.clock().now()).await?;
    messages.retain(|message| feeds.contains(&message.group));
    messages.truncate(limit);
    Ok(Json(Page::complete(messages)))
}

async fn held(State(app): State<App>, caller: Caller) -> Result<Json<Page<Message>>, ApiError> {
    let feeds = caller.feeds(&app).await?;
    let engine = app.engine();
    let mut messages = engine.store().held(BATCH_MAX, engine.clock().now()).await?;
    messages.retain(|message| feeds.contains(&message.group));
    Ok(Json(Page::complete(messages)))
}

async fn dead(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Query(params): Query<ListDead>,
) -> Result<Json<Page<DeadLetter>>, ApiError> {
    let limit = rows(params.limit)?;
    existing_queue(&app, &name).await?;
    let feeds = caller.feeds(&app).await?;
    let mut after = params.after.as_deref().map(cursor::decode).transpose()?;
    let mut items: Vec<DeadLetter> = Vec::new();
    // Dead letters of other projects are skipped in large pages: there may be many before the caller's first one.
    let read_limit = match feeds {
        VisibleFeeds::All => limit,
        VisibleFeeds::OfProjects(_) => BATCH_MAX,
    };
    loop {
        let found = app.engine().store().dead(name.clone(), read_limit, after).await?;
        let more = found.len() == read_limit;
        after = found.last().map(DeadLetter::cursor);
        items.extend(found.into_iter().filter(|letter| feeds.contains(&letter.group)));
        if !more || items.len() >= limit {
            break;
        }
    }
    items.truncate(limit);
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|letter| cursor::encode(&letter.cursor()));
    Ok(Json(Page { items, next }))
}

/// Ids of the dead letters that a caller of one project may replay: those of its feeds, restricted to the named ones
/// if any are named.
async fn visible_dead_letters(
    app: &App,
    queue: &str,
    feeds: &VisibleFeeds,
    named: &[String],
) -> Result<Vec<String>, ApiError> {
    let mut own = Vec::new();
    let mut after = None;
    loop {
        let found = app.engine().store().dead(queue.to_owned(), BATCH_MAX, after).await?;
        let more = found.len() == BATCH_MAX;
        after = found.last().map(DeadLetter::cursor);
        let wanted = |letter: &DeadLetter| {
            feeds.contains(&letter.group) && (named.is_empty() || named.contains(&letter.message_id))
        };
        own.extend(found.into_iter().filter(wanted).map(|letter| letter.message_id));
        if !more {
            return Ok(own);
        }
    }
}

/// Hints for dead letters whose partition or sync has failed: replaying them has no effect.
async fn hints_for(
    app: &App,
    queue: &str,
    feeds: &VisibleFeeds,
    request: &ReplayDead,
) -> Result<Vec<String>, ApiError> {
    let store = app.engine().store();
    let mut hints = Vec::new();
    for letter in store.dead(queue.to_owned(), BATCH_MAX, None).await? {
        let named = request.all || request.ids.contains(&letter.message_id);
        let Some(id) = letter.run_id.clone().filter(|_| named && feeds.contains(&letter.group)) else {
            continue;
        };
        let hint = format!("tidemill sync retry {id}");
        if hints.contains(&hint) {
            continue;
        }
        // A message that does not belong to a sync needs no hint.
        let Ok(sync) = store.sync(id).await else { continue };
        let partition = letter.message_id.split(':').nth(1);
        let failed = sync.state == SyncState::Failed
            || store
                .partitions(sync.run_id)
                .await?
                .iter()
                .any(|part| part.state.failed() && Some(part.partition_id.as_str()) == partition);
        if failed {
            hints.push(hint);
        }
        if hints.len() == HINTS_MAX {
            break;
        }
    }
    Ok(hints)
}

async fn replay(
    State(app): State<App>,
    caller: Caller,
    Id(Name(queue)): Id<Name>,
    Body(request): Body<ReplayDead>,
) -> Result<Json<ReplayResponse>, ApiError> {
    if request.all != request.ids.is_empty() {
        let problem = "must contain message ids unless `all` is true; give one of the two".to_owned();
        return Err(ApiError::invalid(vec![FieldError { field: "ids".to_owned(), problem }]));
    }
    existing_queue(&app, &queue).await?;
    let engine = app.engine();
    let feeds = caller.feeds(&app).await?;
    let hints = hints_for(&app, &queue, &feeds, &request).await?;
    let which = match (&feeds, request.all) {
        (VisibleFeeds::All, true) => vec![Replay::All],
        (VisibleFeeds::All, false) => vec![Replay::Ids(request.ids)],
        (VisibleFeeds::OfProjects(_), _) => {
            let own = visible_dead_letters(&app, &queue, &feeds, &request.ids).await?;
            own.chunks(BATCH_MAX).map(|ids| Replay::Ids(ids.to_vec())).collect()
        }
    };
    let mut replayed = 0;
    for which in which {
        replayed += engine.store().replay(queue.clone(), which, engine.clock().now()).await?;
    }
    Ok(Json(ReplayResponse { queue, replayed, hints }))
}
