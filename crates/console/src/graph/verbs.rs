//! What can be done to a graph: each form is one call of the door.

use crate::act::{Done, Form, go_to};
use crate::confirm::{Ask, SURE};
use crate::layout::Place;
use crate::oops::Oops;
use crate::text::says;
use crate::visitor::Visitor;
use crate::words::counted;
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::Cancelled;
use tidemill_core::shell::command;
use tidemill_core::task::job_id;
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

/// Stops the jobs that were ticked, or runs them again. Where they are several, what will happen is said first.
pub(super) async fn some(visitor: Visitor, Path(run): Path<String>, form: Form) -> Result<Response, Oops> {
    let run = id(&run)?;
    let jobs: Vec<String> = form.all("job").map(str::to_owned).collect();
    if jobs.is_empty() {
        return Err(Oops::bad_form("no job is selected; tick those that are meant"));
    }
    if jobs.len() > JOBS_MAX {
        return Err(Oops::bad_form(format!("at most {JOBS_MAX} jobs can be selected at once")));
    }
    // Whoever may not do it hears that from the door.
    let asks = jobs.len() > 1 && visitor.may_operate() && !form.is_ticked(SURE);
    match form.field("act") {
        Some("cancel") if asks => {
            let ended = ended(&form.client, &run, &jobs).await?;
            Ok(cancels(&run, &jobs, ended).show(&visitor, &form))
        }
        Some("retry") if asks => Ok(repeats(&run, &jobs).show(&visitor, &form)),
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

/// How many of these jobs have ended, or are not there.
async fn ended(client: &Client, run: &RunId, jobs: &[String]) -> Result<usize, Oops> {
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
    counted(i64::try_from(jobs).unwrap_or(i64::MAX), "job", "jobs")
}

/// The command that does the same.
fn same(verb: &str, run: &RunId, jobs: &[String]) -> Vec<String> {
    let options = jobs.iter().flat_map(|job| ["--job", job.as_str()]);
    vec![command(["graph", verb, run.as_str()].into_iter().chain(options))]
}

fn names(jobs: &[String]) -> Markup {
    html! { p { @for job in jobs { span.chip { (says(job)) } " " } } }
}

fn cancels(run: &RunId, jobs: &[String], ended: usize) -> Ask<'static> {
    let happens = html! {
        ul {
            li { b { (number(jobs.len().saturating_sub(ended))) } " of this run are cancelled at once, and agents stop \
                what runs of them. Jobs that need them cannot run." }
            @if ended > 0 { li { b { (number(ended)) } " ended before: nothing happens to what has ended." } }
        }
        (names(jobs))
    };
    let question = format!("Cancel {}?", number(jobs.len()));
    Ask { place: Place::Runs, question, happens, button: "Cancel them", commands: same("cancel", run, jobs) }
}

fn repeats(run: &RunId, jobs: &[String]) -> Ask<'static> {
    let happens = html! {
        p { "Another try of the graph is queued. " b { (number(jobs.len())) } " of it, and everything after them, run \
            again; what else succeeded is reused." }
        (names(jobs))
    };
    let question = format!("Run {} again?", number(jobs.len()));
    Ask {
        place: Place::Runs,
        question,
        happens,
        button: "Run them again",
        commands: same("retry", run, jobs),
    }
}

async fn again(form: &Form, run: &RunId, jobs: Vec<String>) -> Result<Response, Oops> {
    let answer = form.client.retry_graph(run, &RetryGraph { jobs }).await?;
    let done = if answer.created { Done::Retried } else { Done::RetriedBefore };
    Ok(go_to(&format!("/runs/{}", answer.run_id.in_path()), done))
}
