//! Forms that act on feeds.

use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome, redirect_with_message};
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::feeds::StartSync;
use tidemill_wire::projects::Pause;

pub(super) async fn sync(Path(feed): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let start = StartSync { full: form.is_checked("full") };
    let queued = form.client.start_sync(&feed, start, None).await?;
    Ok(redirect_with_message(
        &format!("/runs/{}", queued.run_id.in_path()),
        FormOutcome::Message("sync-queued"),
    ))
}

pub(super) async fn pause(Path(feed): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let pause = Pause { note: form.field("note").map(str::to_owned), until_at: None };
    form.client.pause_feed(&feed, &pause).await?;
    Ok(form.back(FormOutcome::Message("paused")))
}

pub(super) async fn resume(Path(feed): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let resumed = form.client.resume_feed(&feed).await?.resumed;
    Ok(form.back(FormOutcome::Message(if resumed { "resumed" } else { "not-paused" })))
}
