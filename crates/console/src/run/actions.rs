//! Forms that act on runs.

use super::id;
use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome, redirect_with_message};
use axum::extract::Path;
use axum::response::Response;
use tidemill_core::run::CancelOutcome;
use tidemill_wire::runs::Fail;

pub(super) async fn cancel(Path(run): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let reason = form.field("reason").map(str::to_owned);
    let response = form.client.cancel_run(&id(&run)?, reason).await?;
    Ok(form.back(match response.outcome {
        CancelOutcome::Cancelled => FormOutcome::Cancelled,
        CancelOutcome::Requested => FormOutcome::CancelRequested,
        CancelOutcome::Ended => FormOutcome::CancelLate,
    }))
}

pub(super) async fn fail(Path(run): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let reason = form.field("reason").map(str::to_owned);
    let request = Fail { reason, retry: form.field("retry").is_some() };
    let response = form.client.fail_run(&id(&run)?, &request).await?;
    Ok(match response.successor {
        Some(next) => redirect_with_message(&format!("/runs/{next}"), FormOutcome::Retried),
        None => form.back(FormOutcome::Message("failed")),
    })
}

pub(super) async fn retry(Path(run): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let response = form.client.retry_run(&id(&run)?).await?;
    let done = if response.created { FormOutcome::Retried } else { FormOutcome::RetriedBefore };
    Ok(redirect_with_message(&format!("/runs/{}", response.run_id.in_path()), done))
}
