//! Live events, as server-sent events: one run's, a project's, or all.
//!
//! A reader that comes back with the id of the last event it got misses nothing and gets nothing twice. Events of one
//! run come in their order. Who does not keep up is let go, and comes back. Whose token is revoked or expired, or whose
//! session is over, is let go within seconds.

mod frame;
mod hub;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use hub::Hub;

use crate::access::{Caller, Visit, unknown_project};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Id, LastEventId, Query};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use frame::answer;
use http::Method;
use hub::Wish;
use reader::{Begin, Reader};
use tidemill_core::RunId;
use tidemill_core::live::Cursor;
use tidemill_wire::Fault;
use tidemill_wire::live::{Follow, FollowRun};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const EVENTS: &str = "text/event-stream";
    vec![
        Endpoint::new(Method::GET, "/v1/runs/{run}/stream", Allowed::LookOrWork, one_run)
            .says("events", "Stream a run's events as they are written; resumes after Last-Event-ID")
            .query::<FollowRun>()
            .text(200, "Server-sent events: the sequence number, the kind, and the event as JSON", EVENTS)
            .waits(),
        Endpoint::new(Method::GET, "/v1/stream", Allowed::Look, everybody)
            .says("events", "Stream the events of a project, or of all; resumes after Last-Event-ID")
            .query::<Follow>()
            .text(200, "Server-sent events: an id to resume after, the kind, and the event as JSON", EVENTS)
            .waits(),
    ]
}

/// Tells the hub to look, once something may have been committed.
pub(crate) async fn hint(State(app): State<App>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    app.live().hint();
    response
}

/// Says which part of the request names no place.
fn no_place(last: Option<&String>, problem: &str) -> Fail {
    let field = if last.is_some() { "Last-Event-ID" } else { "after" };
    Fail::invalid(vec![Fault { field: field.to_owned(), problem: problem.to_owned() }])
}

async fn one_run(
    State(app): State<App>,
    caller: Caller,
    visit: Visit,
    Id(run): Id<RunId>,
    Query(asked): Query<FollowRun>,
    LastEventId(last): LastEventId,
) -> Result<Response, Fail> {
    let after = match &last {
        Some(text) => text.parse().ok(),
        None => Some(asked.after.unwrap_or(0)),
    };
    let after = after.filter(|after| *after >= 0);
    let after = after.ok_or_else(|| no_place(last.as_ref(), "is not the number of an event of a run"))?;
    caller.run(&app, &run).await?;
    let reader = Reader::new(&app, &visit)?;
    Ok(answer(|frames| reader.follow_run(run, after, frames)))
}

async fn everybody(
    State(app): State<App>,
    caller: Caller,
    visit: Visit,
    Query(asked): Query<Follow>,
    LastEventId(last): LastEventId,
) -> Result<Response, Fail> {
    let after = last.as_ref().or(asked.after.as_ref());
    let cursor = after.map(|text| text.parse::<Cursor>()).transpose();
    let cursor = cursor.map_err(|bad| no_place(last.as_ref(), &bad.to_string()))?;
    let project = caller.narrow(asked.project)?;
    if let Some(name) = project.as_deref().filter(|_| caller.project.is_none()) {
        let known = app.engine().store().projects().await?;
        if !known.iter().any(|project| project.project_id == name) {
            return Err(unknown_project(name));
        }
    }
    let reader = Reader::new(&app, &visit)?;
    let wish = project.map_or(Wish::All, Wish::Project);
    // Who gets an answer is told of everything that is written from then on.
    let begin = match cursor {
        Some(cursor) => Begin::After(cursor),
        None => Begin::Now(app.live().inner().join(wish.clone()).await?),
    };
    Ok(answer(|frames| reader.follow(wish, begin, frames)))
}
