//! What can be done to a sync: each form is one call of the door.

use crate::act::{Done, Form, go_to};
use crate::oops::Oops;
use axum::extract::Path;
use axum::response::Response;
use tidemill_wire::syncs::{Consolidate, RetrySync};

pub(super) async fn retry(Path(sync): Path<String>, form: Form) -> Result<Response, Oops> {
    let partition = form.field("partition").map(str::to_owned);
    let retry = RetrySync { restart: form.is_ticked("restart"), partition };
    let answer = form.client.retry_sync(&sync, &retry).await?;
    let done = if answer.created { Done::Retried } else { Done::RetriedBefore };
    Ok(go_to(&format!("/runs/{}", answer.run_id.in_path()), done))
}

pub(super) async fn cancel(Path(sync): Path<String>, form: Form) -> Result<Response, Oops> {
    let reason = form.field("reason").map(str::to_owned);
    let answer = form.client.cancel_sync(&sync, reason).await?;
    Ok(form.back(if answer.cancelled { Done::SyncCancelled } else { Done::CancelLate }))
}

pub(super) async fn consolidate(Path(sync): Path<String>, form: Form) -> Result<Response, Oops> {
    let force = form.is_ticked("force");
    if force && !form.is_ticked("sure") {
        return Err(Oops::bad_form("say that you know which ranges will be missing"));
    }
    let order = Consolidate { force, advance: form.is_ticked("advance") };
    form.client.consolidate_sync(&sync, order).await?;
    // A successor of the run carries the order: the page of the sync leads there.
    let run = form.client.sync(&sync).await?.sync.ops_run_id;
    Ok(go_to(&format!("/runs/{}", run.in_path()), Done::Consolidating))
}
