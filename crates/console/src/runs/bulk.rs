//! Several runs at once: one call of the door for each, and a count of what came of it.

use crate::act::{Done, Form};
use crate::oops::Oops;
use axum::response::Response;
use tidemill_client::Error;
use tidemill_core::RunId;
use tidemill_core::run::Cancelled;

/// Runs that one form acts on.
const RUNS_MAX: usize = 200;

/// Cancels or retries the runs that were selected.
pub(super) async fn bulk(form: Form) -> Result<Response, Oops> {
    let runs: Vec<RunId> = form.all("run").filter_map(|run| run.parse().ok()).collect();
    if runs.is_empty() {
        return Err(Oops::bad_form("no run is selected; tick those that are meant"));
    }
    if runs.len() > RUNS_MAX {
        return Err(Oops::bad_form(format!("at most {RUNS_MAX} runs can be selected at once")));
    }
    let (code, cancels) = match form.field("act") {
        Some("cancel") => ("bulk-cancel", true),
        Some("retry") => ("bulk-retry", false),
        Some(_) | None => return Err(Oops::bad_form("this form does not say what to do")),
    };
    let mut count = 0;
    for run in &runs {
        let done = if cancels {
            form.client.cancel_run(run, None).await.map(|answer| answer.outcome != Cancelled::Ended)
        } else {
            form.client.retry_run(run).await.map(|_| true)
        };
        count += match done {
            Ok(done) => usize::from(done),
            // What is wrong with one run keeps nothing from the others; what is wrong with the caller does.
            Err(Error::Refused { status, .. }) if status.as_u16() == 404 || status.as_u16() == 409 => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(form.back(Done::Bulk { code, count, of: runs.len() }))
}
