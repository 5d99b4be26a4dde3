//! Live event streams (server-sent events) of one run, of a project, or of all projects.
//!
//! A client that reconnects with the id of its last event gets every event exactly once. Events of one run arrive in
//! order. The server closes the stream of a slow client, which then reconnects. It also closes a stream within seconds
//! after its token is revoked or expires, or its session ends.

mod frame;
mod hub;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use hub::Hub;

use crate::access::{AuthContext, Caller, unknown_project};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Id, LastEventId, Query};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use frame::stream_response;
use http::Method;
use hub::StreamFilter;
use reader::{Reader, StreamStart};
use tidemill_core::RunId;
use tidemill_core::live::Cursor;
use tidemill_wire::FieldError;
use tidemill_wire::live::{FollowEvents, FollowRun};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const EVENTS: &str = "text/event-stream";
    vec![
        Endpoint::new(Method::GET, "/v1/runs/{run}/stream", Permission::ReadOrWork, stream_run)
            .describe("events", "Stream a run's events; resumes after Last-Event-ID")
            .query::<FollowRun>()
            .responds_text(200, "Server-sent events: sequence number, kind, and the event as JSON", EVENTS)
            .long_poll(),
        Endpoint::new(Method::GET, "/v1/stream", Permission::Read, stream_events)
            .describe(
                "events",
                "Stream the events of a project, or of all projects; resumes after Last-Event-ID",
            )
            .query::<FollowEvents>()
            .responds_text(
                200,
                "Server-sent events: an id to resume after, the kind, and the event as JSON",
                EVENTS,
            )
            .long_poll(),
    ]
}

/// Middleware that wakes the hub after a request that may have committed events.
pub(crate) async fn wake_hub(State(app): State<App>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    app.live().wake();
    response
}

/// Error for an invalid stream position.
fn invalid_position(last: Option<&String>, problem: &str) -> ApiError {
    let field = if last.is_some() { "Last-Event-ID" } else { "after" };
    ApiError::invalid(vec![FieldError { field: field.to_owned(), problem: problem.to_owned() }])
}

async fn stream_run(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Query(params): Query<FollowRun>,
    LastEventId(last): LastEventId,
) -> Result<Response, ApiError> {
    let after = match &last {
        Some(text) => text.parse().ok(),
        None => Some(params.after.unwrap_or(0)),
    };
    let after = after.filter(|after| *after >= 0);
    let after =
        after.ok_or_else(|| invalid_position(last.as_ref(), "is not a sequence number of an event"))?;
    caller.run(&app, &run).await?;
    let reader = Reader::new(&app, &auth)?;
    Ok(stream_response(|frames| reader.follow_run(run, after, frames)))
}

async fn stream_events(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Query(params): Query<FollowEvents>,
    LastEventId(last): LastEventId,
) -> Result<Response, ApiError> {
    let after = last.as_ref().or(params.after.as_ref());
    let cursor = after.map(|text| text.parse::<Cursor>()).transpose();
    let cursor = cursor.map_err(|bad| invalid_position(last.as_ref(), &bad.to_string()))?;
    let project = caller.narrow_project(params.project)?;
    if let Some(name) = project.as_deref().filter(|_| caller.sees_all_projects()) {
        let known = app.engine().store().projects().await?;
        if !known.iter().any(|project| project.project_id == name) {
            return Err(unknown_project(name));
        }
    }
    let reader = Reader::new(&app, &auth)?;
    let filter = project.map_or(StreamFilter::All, StreamFilter::Project);
    // Joined before the response starts, so that no event after the response is missed.
    let start = match cursor {
        Some(cursor) => StreamStart::After(cursor),
        None => StreamStart::Now(app.live().inner().subscribe(filter.clone()).await?),
    };
    Ok(stream_response(|frames| reader.follow(filter, start, frames)))
}
