//! Forms that act on syncs.

use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome, redirect_with_message};
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::syncs::{Consolidate, RetrySync};

pub(super) async fn retry(Path(sync): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let partition = form.field("partition").map(str::to_owned);
    let retry = RetrySync { restart: form.is_checked("restart"), partition };
    let response = form.client.retry_sync(&sync, &retry).await?;
    let done = if response.created { FormOutcome::Retried } else { FormOutcome::RetriedBefore };
    Ok(redirect_with_message(&format!("/runs/{}", response.run_id.in_path()), done))
}

pub(super) async fn cancel(Path(sync): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let reason = form.field("reason").map(str::to_owned);
    let response = form.client.cancel_sync(&sync, reason).await?;
    Ok(form.back(if response.cancelled { FormOutcome::SyncCancelled } else { FormOutcome::CancelLate }))
}

pub(super) async fn consolidate(Path(sync): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let force = form.is_checked("force");
    if force && !form.is_checked("sure") {
        return Err(ErrorPage::bad_form("confirm that the failed ranges will be missing"));
    }
    let request = Consolidate { force, advance: form.is_checked("advance") };
    form.client.consolidate_sync(&sync, request).await?;
    // A successor of the run executes the consolidation, so the redirect leads to its page.
    let run = form.client.sync(&sync).await?.sync.ops_run_id;
    Ok(redirect_with_message(&format!("/runs/{}", run.in_path()), FormOutcome::Consolidating))
}
