//! What can be done to a run: each form is one call of the door.

use super::id;
use crate::act::{Done, Form, go_to};
use crate::oops::Oops;
use axum::extract::Path;
use axum::response::Response;
use tidemill_core::run::Cancelled;
use tidemill_wire::runs::Fail;

pub(super) async fn cancel(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let reason = form.field("reason").map(str::to_owned);
    let answer = form.client.cancel_run(&id(&run)?, reason).await?;
    Ok(form.back(match answer.outcome {
        Cancelled::Cancelled => Done::Cancelled,
        Cancelled::Requested => Done::CancelAsked,
        Cancelled::Ended => Done::CancelLate,
    }))
}

pub(super) async fn fail(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let reason = form.field("reason").map(str::to_owned);
    let ask = Fail { reason, retry: form.field("retry").is_some() };
    let answer = form.client.fail_run(&id(&run)?, &ask).await?;
    Ok(match answer.successor {
        Some(next) => go_to(&format!("/runs/{next}"), Done::Retried),
        None => form.back(Done::Plain("failed")),
    })
}

pub(super) async fn retry(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let answer = form.client.retry_run(&id(&run)?).await?;
    let done = if answer.created { Done::Retried } else { Done::RetriedBefore };
    Ok(go_to(&format!("/runs/{}", answer.run_id.in_path()), done))
}
