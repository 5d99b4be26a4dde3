//! Forms that act on graphs.

use crate::confirm::{Confirmation, SURE};
use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome, redirect_with_message};
use crate::layout::Section;
use crate::page_context::PageContext;
use crate::text::safe;
use crate::widgets::pluralize;
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::CancelOutcome;
use tidemill_core::shell::command;
use tidemill_core::task::job_id;
use tidemill_wire::graphs::{CancelGraph, RetryGraph};

/// Maximum number of jobs per form; a page shows fewer.
const JOBS_MAX: usize = 200;

fn id(text: &str) -> Result<RunId, ErrorPage> {
    text.parse().map_err(|_| ErrorPage::not_found(format!("`{text}` is not a run id")))
}

pub(super) async fn cancel(Path(run): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let request = CancelGraph { jobs: Vec::new(), reason: form.field("reason").map(str::to_owned) };
    let response = form.client.cancel_graph(&id(&run)?, &request).await?;
    Ok(form.back(match response.outcome {
        CancelOutcome::Cancelled | CancelOutcome::Requested => FormOutcome::Message("graph-cancelled"),
        CancelOutcome::Ended => FormOutcome::CancelLate,
    }))
}

/// Retries the jobs that did not succeed.
pub(super) async fn retry(Path(run): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    retry_jobs(&form, &id(&run)?, Vec::new()).await
}

/// Cancels or retries the selected jobs. With more than one, asks for confirmation first.
pub(super) async fn selected_jobs(
    context: PageContext,
    Path(run): Path<String>,
    form: Form,
) -> Result<Response, ErrorPage> {
    let run = id(&run)?;
    let jobs: Vec<String> = form.values("job").map(str::to_owned).collect();
    if jobs.is_empty() {
        return Err(ErrorPage::bad_form("no job is selected"));
    }
    if jobs.len() > JOBS_MAX {
        return Err(ErrorPage::bad_form(format!("at most {JOBS_MAX} jobs can be selected at once")));
    }
    // A user without the permission gets the API's refusal instead of a confirmation page.
    let needs_confirmation = jobs.len() > 1 && context.may_operate() && !form.is_checked(SURE);
    match form.field("act") {
        Some("cancel") if needs_confirmation => {
            let ended = ended(&form.client, &run, &jobs).await?;
            Ok(cancel_confirmation(&run, &jobs, ended).show(&context, &form))
        }
        Some("retry") if needs_confirmation => Ok(retry_confirmation(&run, &jobs).show(&context, &form)),
        Some("cancel") => {
            let of = jobs.len();
            let request = CancelGraph { jobs, reason: form.field("reason").map(str::to_owned) };
            let response = form.client.cancel_graph(&run, &request).await?;
            let count = usize::try_from(response.jobs).unwrap_or(of);
            Ok(form.back(FormOutcome::Bulk { code: "bulk-stop", count, of }))
        }
        Some("retry") => retry_jobs(&form, &run, jobs).await,
        Some(_) | None => Err(ErrorPage::bad_form("form field `act` must be `cancel` or `retry`")),
    }
}

/// Number of these jobs that have ended or do not exist.
async fn ended(client: &Client, run: &RunId, jobs: &[String]) -> Result<usize, ErrorPage> {
    let mut ended = 0;
    for name in jobs {
        ended += match client.job(&job_id(run, name)).await {
            Ok(detail) => usize::from(detail.job.code.is_terminal()),
            Err(Error::Refused { status, .. }) if status.as_u16() == 404 => 1,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(ended)
}

fn number(jobs: usize) -> String {
    pluralize(i64::try_from(jobs).unwrap_or(i64::MAX), "job", "jobs")
}

fn equivalent_command(verb: &str, run: &RunId, jobs: &[String]) -> Vec<String> {
    let options = jobs.iter().flat_map(|job| ["--job", job.as_str()]);
    vec![command(["graph", verb, run.as_str()].into_iter().chain(options))]
}

fn names(jobs: &[String]) -> Markup {
    html! { p { @for job in jobs { span.chip { (safe(job)) } " " } } }
}

fn cancel_confirmation(run: &RunId, jobs: &[String], ended: usize) -> Confirmation<'static> {
    let consequences = html! {
        ul {
            li { b { (number(jobs.len().saturating_sub(ended))) } " of this run are cancelled at once. Agents stop \
                their running commands. Jobs that depend on them cannot run." }
            @if ended > 0 { li { b { (number(ended)) } " already ended and are not affected." } }
        }
        (names(jobs))
    };
    let question = format!("Cancel {}?", number(jobs.len()));
    Confirmation {
        section: Section::Runs,
        question,
        consequences,
        button: "Cancel them",
        commands: equivalent_command("cancel", run, jobs),
    }
}

fn retry_confirmation(run: &RunId, jobs: &[String]) -> Confirmation<'static> {
    let consequences = html! {
        p { "A retry of the graph is queued. It runs " b { (number(jobs.len())) } " and all jobs that depend on them \
            again. Other successful jobs are reused." }
        (names(jobs))
    };
    let question = format!("Retry {}?", number(jobs.len()));
    Confirmation {
        section: Section::Runs,
        question,
        consequences,
        button: "Retry them",
        commands: equivalent_command("retry", run, jobs),
    }
}

async fn retry_jobs(form: &Form, run: &RunId, jobs: Vec<String>) -> Result<Response, ErrorPage> {
    let response = form.client.retry_graph(run, &RetryGraph { jobs }).await?;
    let done = if response.created { FormOutcome::Retried } else { FormOutcome::RetriedBefore };
    Ok(redirect_with_message(&format!("/runs/{}", response.run_id.in_path()), done))
}
