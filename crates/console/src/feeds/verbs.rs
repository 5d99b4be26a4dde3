//! What can be done to a feed: each form is one call of the door.

use crate::act::{Done, Form, go_to};
use crate::oops::Oops;
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::feeds::StartSync;
use tidemill_wire::projects::Pause;

pub(super) async fn sync(Path(feed): Path<String>, form: Form) -> Result<Response, Oops> {
    let start = StartSync { full: form.is_ticked("full") };
    let queued = form.client.start_sync(&feed, start, None).await?;
    Ok(go_to(&format!("/runs/{}", queued.run_id.in_path()), Done::Plain("sync-queued")))
}

pub(super) async fn pause(Path(feed): Path<String>, form: Form) -> Result<Response, Oops> {
    let pause = Pause { note: form.field("note").map(str::to_owned), until_at: None };
    form.client.pause_feed(&feed, &pause).await?;
    Ok(form.back(Done::Plain("paused")))
}

pub(super) async fn resume(Path(feed): Path<String>, form: Form) -> Result<Response, Oops> {
    let resumed = form.client.resume_feed(&feed).await?.resumed;
    Ok(form.back(Done::Plain(if resumed { "resumed" } else { "not-paused" })))
}
