//! Queues: depth, a look at the next messages, dead letters and their replay.
//!
//! A message belongs to a group, which is a feed: a caller of one project sees the messages of its own feeds.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::cursor;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id, Query};
use crate::runs::rows;
use crate::scope::{Feeds, Name};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::queue::{DeadLetter, Message, QueueDepth, QueueSettings, Replay};
use tidemill_core::sync::SyncState;
use tidemill_store::Queue as _;
use tidemill_wire::queues::{ListDead, Peek, QueueLine, ReplayDead, Replayed};
use tidemill_wire::{Fault, Page};

/// Syncs that one answer names at the most.
const HINTS_MAX: usize = 10;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/queues", Allowed::Look, list)
            .says("queues", "List queues, what is in them, and how they treat it")
            .answers::<Page<QueueLine>>(200, "The queues"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}", Allowed::Look, one)
            .says("queues", "Show a queue")
            .answers::<QueueLine>(200, "The queue"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}/messages", Allowed::Look, peek)
            .says("queues", "Look at the next messages of a queue, and those that are locked or delayed")
            .query::<Peek>()
            .answers::<Page<Message>>(200, "The messages; nothing is taken"),
        Endpoint::new(Method::GET, "/v1/messages", Allowed::Look, held)
            .says("queues", "List the messages that workers hold, of every queue")
            .answers::<Page<Message>>(200, "The messages, by their workers; nothing is taken"),
        Endpoint::new(Method::GET, "/v1/queues/{queue}/dead", Allowed::Look, dead)
            .says("queues", "List dead letters, the oldest first")
            .query::<ListDead>()
            .answers::<Page<DeadLetter>>(200, "One page of dead letters"),
        Endpoint::new(Method::POST, "/v1/queues/{queue}/replay", Allowed::Operate, replay)
            .says("queues", "Send dead letters again: one, some or all")
            .body::<ReplayDead>()
            .answers::<Replayed>(200, "How many were sent; asked twice, nothing is sent twice"),
    ]
}

/// What is in a queue, as far as the caller sees it.
async fn line(app: &App, feeds: &Feeds, settings: QueueSettings) -> Result<QueueLine, Fail> {
    let engine = app.engine();
    let mut depth = engine.store().depth(settings.queue.clone(), engine.clock().now()).await?;
    if let Feeds::Of(_) = feeds {
        depth.groups.retain(|group| feeds.has(&group.group));
        depth = QueueDepth::of(depth.groups);
    }
    Ok(QueueLine { settings, depth })
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<QueueLine>>, Fail> {
    let feeds = caller.feeds(&app).await?;
    let mut lines = Vec::new();
    for settings in app.engine().store().queues().await? {
        lines.push(line(&app, &feeds, settings).await?);
    }
    Ok(Json(Page::whole(lines)))
}

/// A queue that exists.
async fn known(app: &App, name: &str) -> Result<QueueSettings, Fail> {
    let found = app.engine().store().queues().await?.into_iter().find(|settings| settings.queue == name);
    let message = || format!("queue `{name}` does not exist");
    found.ok_or_else(|| {
        Fail::new(StatusCode::NOT_FOUND, "unknown_queue", message()).hint("tidemill queue list")
    })
}

async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<QueueLine>, Fail> {
    let settings = known(&app, &name).await?;
    line(&app, &caller.feeds(&app).await?, settings).await.map(Json)
}

async fn peek(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Query(asked): Query<Peek>,
) -> Result<Json<Page<Message>>, Fail> {
    let limit = rows(asked.limit)?;
    known(&app, &name).await?;
    let feeds = caller.feeds(&app).await?;
    let engine = app.engine();
    // Those of others are passed over among the first of the queue: this is a look, and not a search.
    let looked = match feeds {
        Feeds::All => limit,
        Feeds::Of(_) => BATCH_MAX,
    };
    let mut messages = engine.store().peek(name, looked, engine.clock().now()).await?;
    messages.retain(|message| feeds.has(&message.group));
    messages.truncate(limit);
    Ok(Json(Page::whole(messages)))
}

async fn held(State(app): State<App>, caller: Caller) -> Result<Json<Page<Message>>, Fail> {
    let feeds = caller.feeds(&app).await?;
    let engine = app.engine();
    let mut messages = engine.store().held(BATCH_MAX, engine.clock().now()).await?;
    messages.retain(|message| feeds.has(&message.group));
    Ok(Json(Page::whole(messages)))
}

async fn dead(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    Query(asked): Query<ListDead>,
) -> Result<Json<Page<DeadLetter>>, Fail> {
    let limit = rows(asked.limit)?;
    known(&app, &name).await?;
    let feeds = caller.feeds(&app).await?;
    let mut after = asked.after.as_deref().map(cursor::read).transpose()?;
    let mut items: Vec<DeadLetter> = Vec::new();
    // Those of others are passed over, as many at a time as a page can have: there may be many before the first own.
    let looked = match feeds {
        Feeds::All => limit,
        Feeds::Of(_) => BATCH_MAX,
    };
    loop {
        let found = app.engine().store().dead(name.clone(), looked, after).await?;
        let more = found.len() == looked;
        after = found.last().map(DeadLetter::cursor);
        items.extend(found.into_iter().filter(|letter| feeds.has(&letter.group)));
        if !more || items.len() >= limit {
            break;
        }
    }
    items.truncate(limit);
    let last = items.last().filter(|_| items.len() == limit);
    let next = last.map(|letter| cursor::write(&letter.cursor()));
    Ok(Json(Page { items, next }))
}

/// The ids of dead letters that a caller of one project may replay: those of its feeds, and among them those that it
/// named, where it named some.
async fn own_letters(app: &App, queue: &str, feeds: &Feeds, named: &[String]) -> Result<Vec<String>, Fail> {
    let mut own = Vec::new();
    let mut after = None;
    loop {
        let found = app.engine().store().dead(queue.to_owned(), BATCH_MAX, after).await?;
        let more = found.len() == BATCH_MAX;
        after = found.last().map(DeadLetter::cursor);
        let wanted = |letter: &DeadLetter| {
            feeds.has(&letter.group) && (named.is_empty() || named.contains(&letter.message_id))
        };
        own.extend(found.into_iter().filter(wanted).map(|letter| letter.message_id));
        if !more {
            return Ok(own);
        }
    }
}

/// What to do about dead letters whose partition or sync has failed: sent again, they lead to nothing.
async fn hints_for(app: &App, queue: &str, feeds: &Feeds, asked: &ReplayDead) -> Result<Vec<String>, Fail> {
    let store = app.engine().store();
    let mut hints = Vec::new();
    for letter in store.dead(queue.to_owned(), BATCH_MAX, None).await? {
        let named = asked.all || asked.ids.contains(&letter.message_id);
        let Some(id) = letter.run_id.clone().filter(|_| named && feeds.has(&letter.group)) else { continue };
        let hint = format!("tidemill sync retry {id}");
        if hints.contains(&hint) {
            continue;
        }
        // A message of something else than a sync needs no hint.
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
    Body(asked): Body<ReplayDead>,
) -> Result<Json<Replayed>, Fail> {
    if asked.all != asked.ids.is_empty() {
        let problem = "must name dead letters, or `all` must be true, and not both".to_owned();
        return Err(Fail::invalid(vec![Fault { field: "ids".to_owned(), problem }]));
    }
    known(&app, &queue).await?;
    let engine = app.engine();
    let feeds = caller.feeds(&app).await?;
    let hints = hints_for(&app, &queue, &feeds, &asked).await?;
    let which = match (&feeds, asked.all) {
        (Feeds::All, true) => vec![Replay::All],
        (Feeds::All, false) => vec![Replay::Ids(asked.ids)],
        (Feeds::Of(_), _) => {
            let own = own_letters(&app, &queue, &feeds, &asked.ids).await?;
            own.chunks(BATCH_MAX).map(|ids| Replay::Ids(ids.to_vec())).collect()
        }
    };
    let mut replayed = 0;
    for which in which {
        replayed += engine.store().replay(queue.clone(), which, engine.clock().now()).await?;
    }
    Ok(Json(Replayed { queue, replayed, hints }))
}
