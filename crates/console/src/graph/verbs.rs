//! What can be done to a graph: each form is one call of the door.

use crate::act::{Done, Form, go_to};
use crate::oops::Oops;
use axum::extract::Path;
use axum::response::Response;
use tidemill_core::RunId;
use tidemill_core::run::Cancelled;
use tidemill_wire::graphs::{CancelGraph, RetryGraph};

/// Jobs that one form acts on: more than a page of them shows.
const JOBS_MAX: usize = 200;

fn id(text: &str) -> Result<RunId, Oops> {
    text.parse().map_err(|_| Oops::nothing("this is not the id of a run"))
}

/// Stops everything.
pub(super) async fn cancel(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let wish = CancelGraph { jobs: Vec::new(), reason: form.field("reason").map(str::to_owned) };
    let answer = form.client.cancel_graph(&id(&run)?, &wish).await?;
    Ok(form.back(match answer.outcome {
        Cancelled::Cancelled | Cancelled::Requested => Done::Plain("graph-cancelled"),
        Cancelled::Ended => Done::CancelLate,
    }))
}

/// Another try of what did not succeed.
pub(super) async fn retry(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    again(&form, &id(&run)?, Vec::new()).await
}

/// Stops the jobs that were ticked, or runs them again.
pub(super) async fn some(Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let run = id(&run)?;
    let jobs: Vec<String> = form.all("job").map(str::to_owned).collect();
    if jobs.is_empty() {
        return Err(Oops::bad_form("no job is selected; tick those that are meant"));
    }
    if jobs.len() > JOBS_MAX {
        return Err(Oops::bad_form(format!("at most {JOBS_MAX} jobs can be selected at once")));
    }
    match form.field("act") {
        Some("cancel") => {
            let of = jobs.len();
            let wish = CancelGraph { jobs, reason: form.field("reason").map(str::to_owned) };
            let answer = form.client.cancel_graph(&run, &wish).await?;
            let count = usize::try_from(answer.jobs).unwrap_or(of);
            Ok(form.back(Done::Bulk { code: "bulk-stop", count, of }))
        }
        Some("retry") => again(&form, &run, jobs).await,
        Some(_) | None => Err(Oops::bad_form("this form does not say what to do")),
    }
}

async fn again(form: &Form, run: &RunId, jobs: Vec<String>) -> Result<Response, Oops> {
    let answer = form.client.retry_graph(run, &RetryGraph { jobs }).await?;
    let done = if answer.created { Done::Retried } else { Done::RetriedBefore };
    Ok(go_to(&format!("/runs/{}", answer.run_id), done))
}
