//! Appends events to a run. Triggers write transition events.
//!
//! Events with the same key are one event. Without a key, events with the same level, message and payload within ten
//! seconds are one event. The statement that reads the run also finds earlier events; another one writes the new ones.

use super::super::Holder;
use super::hold::{self, Hold};
use super::json::{list, object_of};
use super::{failed, unknown_run};
use crate::codec::{Columns as _, SqlTime};
use crate::tx::FromColumns as _;
use crate::{Error, RefusalCode, catalog};
use serde_json::json;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use std::collections::{HashMap, HashSet};
use tidemill_core::digest::sha256_hex;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::limits::{EVENT_REPEAT_SECS, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId, Timestamp};

const ACTION: &str = "append events";

pub(in crate::runs) async fn append(
    conn: &mut SqliteConnection,
    run: &RunId,
    events: &[NewEvent],
    holder: &Holder,
    now: Timestamp,
) -> Result<Vec<Option<String>>, Error> {
    let sames: Vec<String> = events.iter().map(same_as).collect();
    let (hold, mut known) = look(conn, run, holder, &sames, now).await?;
    events.iter().try_for_each(check)?;
    if !hold.is_held {
        // A repeated event gets the id of the first even after the end of the run: its first response was lost.
        let answer =
            |(event, same): (&NewEvent, &String)| known.get(same).filter(|_| event.key.is_some()).cloned();
        let ids: Vec<Option<String>> = events.iter().zip(&sames).map(answer).collect();
        if ids.iter().any(Option::is_none) {
            record_refusal(conn, run, "append", hold.epoch, holder.worker.as_deref(), now, ACTION).await?;
        }
        return Ok(ids);
    }
    if hold.status == RunState::Claimed {
        hold::enter_running(conn, run, now, ACTION).await?;
    } else if hold.is_due_for_renewal(now) {
        hold::renew(conn, run, hold::Promise::Unchanged, now, ACTION).await?;
    }
    let mut named = HashSet::new();
    let fresh: Vec<_> = sames
        .iter()
        .map(String::as_str)
        .zip(events)
        .filter(|&(same, _)| !known.contains_key(same) && named.insert(same))
        .collect();
    insert(conn, run, &fresh, &mut known, now).await?;
    Ok(sames.iter().map(|same| known.get(same).cloned()).collect())
}

/// Returns the digest by which an event without a key is compared with earlier ones.
fn same_as(event: &NewEvent) -> String {
    if let Some(key) = &event.key {
        return format!("k:{key}");
    }
    let text = format!("{}\u{1f}{}\u{1f}{}", event.level, event.message, event.payload);
    // Half of the digest is enough for a comparison within ten seconds of one run.
    format!("h:{}", &sha256_hex(text.as_bytes())[..32])
}

fn check(event: &NewEvent) -> Result<(), Error> {
    let refused = |what: &str, max| {
        Err(Error::refused(RefusalCode::TooLarge, format!("the {what} is larger than {max} bytes")))
    };
    if event.message.len() > MESSAGE_BYTES_MAX {
        return refused("message", MESSAGE_BYTES_MAX);
    }
    if event.payload.to_string().len() > PAYLOAD_BYTES_MAX {
        return refused("payload", PAYLOAD_BYTES_MAX);
    }
    tidemill_core::json::check_text(event.payload.to_string()).map_err(|problem| {
        Error::refused(RefusalCode::BadValue, format!("the payload {}", problem.with_advice()))
    })
}

async fn look(
    conn: &mut SqliteConnection,
    run: &RunId,
    holder: &Holder,
    sames: &[String],
    now: Timestamp,
) -> Result<(Hold, HashMap<String, String>), Error> {
    let window = chrono::Duration::seconds(i64::try_from(EVENT_REPEAT_SECS).unwrap_or(0));
    let row = sqlx::query(catalog::sqlite(catalog::APPEND_LOOKUP))
        .bind(run.as_str())
        .bind(&holder.worker)
        .bind(holder.epoch)
        .bind(list(sames.iter().map(|same| Json::from(same.as_str()))))
        .bind(SqlTime(now - window))
        .fetch_optional(conn)
        .await
        .map_err(failed(ACTION))?;
    let row = row.ok_or_else(|| unknown_run(run))?;
    let hold = Hold::read(&row).map_err(failed(ACTION))?;
    let known = row.json("known").map_err(failed(ACTION))?;
    let text = |(same, id): (&String, &Json)| Some((same.clone(), id.as_str()?.to_owned()));
    Ok((hold, known.as_object().into_iter().flatten().filter_map(text).collect()))
}

/// Writes new events in order and stores the id of each.
async fn insert(
    conn: &mut SqliteConnection,
    run: &RunId,
    fresh: &[(&str, &NewEvent)],
    known: &mut HashMap<String, String>,
    now: Timestamp,
) -> Result<(), Error> {
    if fresh.is_empty() {
        return Ok(());
    }
    let rows = fresh.iter().map(|(same, event)| {
        // The payload is a string within the JSON text, so that its spelling is preserved.
        json!([event.level.as_str(), event.message, event.payload.to_string(), event.key, same])
    });
    let written = sqlx::query(catalog::sqlite(catalog::APPEND_INSERT))
        .bind(run.as_str())
        .bind(list(rows))
        .bind(SqlTime(now))
        .fetch_all(conn)
        .await
        .map_err(failed(ACTION))?;
    let read =
        |row: &SqliteRow| -> sqlx::Result<(i32, String)> { Ok((row.int("seq")?, row.text("event_id")?)) };
    let mut ids: Vec<_> = written.iter().map(read).collect::<sqlx::Result<_>>().map_err(failed(ACTION))?;
    ids.sort_unstable();
    known.extend(fresh.iter().zip(ids).map(|((same, _), (_, id))| ((*same).to_owned(), id)));
    Ok(())
}

/// Records a request of a person as an event.
pub(super) async fn record_request(
    conn: &mut SqliteConnection,
    run: &RunId,
    (level, message, payload): (Level, &str, Json),
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    sqlx::query(catalog::sqlite(catalog::APPEND_REQUEST))
        .bind(run.as_str())
        .bind(level.as_str())
        .bind(message)
        .bind(payload.to_string())
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(action))?;
    Ok(())
}

/// Records that a call was refused, once per run, verb and epoch, so that a repeated call adds no event.
pub(super) async fn record_refusal(
    conn: &mut SqliteConnection,
    run: &RunId,
    verb: &str,
    epoch: i32,
    worker: Option<&str>,
    now: Timestamp,
    action: &'static str,
) -> Result<(), Error> {
    let payload = object_of([
        ("verb", Some(Json::from(verb))),
        ("epoch", Some(Json::from(epoch))),
        ("worker_id", worker.map(Json::from)),
    ]);
    sqlx::query(catalog::sqlite(catalog::APPEND_REFUSAL))
        .bind(run.as_str())
        .bind(format!("Refused {verb}: the lease is gone"))
        .bind(payload.to_string())
        .bind(format!("r:{verb}:{epoch}"))
        .bind(SqlTime(now))
        .execute(conn)
        .await
        .map_err(failed(action))?;
    Ok(())
}
