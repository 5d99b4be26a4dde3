//! Actions on several runs: a confirmation page, then one API call per run, then the number of changed runs.

use crate::confirm::{Confirmation, SURE};
use crate::error_page::ErrorPage;
use crate::forms::{Form, FormOutcome};
use crate::layout::Section;
use crate::page_context::PageContext;
use crate::widgets::{pluralize, run_link, state, subject};
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::{CancelOutcome, Run, RunState};
use tidemill_core::shell::command;
use tokio::task::JoinSet;

/// Maximum number of runs per form.
const RUNS_MAX: usize = 200;

/// Action on each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Cancel,
    Retry,
}

/// Cancels or retries the selected runs.
pub(super) async fn bulk(context: PageContext, form: Form) -> Result<Response, ErrorPage> {
    let mut runs: Vec<RunId> = Vec::new();
    for run in form.values("run").filter_map(|run| run.parse().ok()) {
        if !runs.contains(&run) {
            runs.push(run);
        }
        if runs.len() > RUNS_MAX {
            return Err(ErrorPage::bad_form(format!("at most {RUNS_MAX} runs can be selected at once")));
        }
    }
    if runs.is_empty() {
        return Err(ErrorPage::bad_form("no run is selected"));
    }
    let (code, act) = match form.field("act") {
        Some("cancel") => ("bulk-cancel", Act::Cancel),
        Some("retry") => ("bulk-retry", Act::Retry),
        Some(_) | None => return Err(ErrorPage::bad_form("form field `act` must be `cancel` or `retry`")),
    };
    // A user without the permission gets the API's refusal instead of a confirmation page.
    if runs.len() > 1 && context.may_operate() && !form.is_checked(SURE) {
        let found = read(&form.client, &runs).await?;
        return Ok(confirmation(act, &runs, &found).show(&context, &form));
    }
    let mut count = 0;
    for run in &runs {
        let done = match act {
            Act::Cancel => {
                form.client.cancel_run(run, None).await.map(|answer| answer.outcome != CancelOutcome::Ended)
            }
            Act::Retry => form.client.retry_run(run).await.map(|_| true),
        };
        count += match done {
            Ok(done) => usize::from(done),
            // A refusal that concerns one run does not stop the others; any other error does.
            Err(Error::Refused { status, .. }) if status.as_u16() == 404 || status.as_u16() == 409 => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(form.back(FormOutcome::Bulk { code, count, of: runs.len() }))
}

/// Reads the runs that still exist, in order.
async fn read(client: &Client, runs: &[RunId]) -> Result<Vec<Run>, Error> {
    let mut tasks: JoinSet<(usize, Result<Run, Error>)> = JoinSet::new();
    for (index, run) in runs.iter().enumerate() {
        let (client, run) = (client.clone(), run.clone());
        tasks.spawn(async move { (index, client.run(&run).await) });
    }
    let mut found = Vec::new();
    while let Some(result) = tasks.join_next().await {
        match result.map_err(|error| Error::InvalidResponse(error.to_string()))? {
            (index, Ok(run)) => found.push((index, run)),
            (_, Err(Error::Refused { status, .. })) if status.as_u16() == 404 => {}
            (_, Err(error)) => return Err(error),
        }
    }
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, run)| run).collect())
}

fn confirmation(act: Act, selected: &[RunId], found: &[Run]) -> Confirmation<'static> {
    let (verb, word, button) = match act {
        Act::Cancel => ("cancel", "Cancel", "Cancel them"),
        Act::Retry => ("retry", "Retry", "Retry them"),
    };
    let runs = pluralize(i64::try_from(selected.len()).unwrap_or(i64::MAX), "run", "runs");
    let consequences = html! {
        ul { @for line in lines(act, selected.len(), found) { li { (line) } } }
        div.scroll { table { tbody { @for run in found {
            tr { td { (state(run.status)) } td { (run_link(&run.run_id)) " " (subject(run)) } }
        } } } }
    };
    let commands = selected.iter().map(|run| command(["run", verb, run.as_str()]));
    Confirmation {
        section: Section::Runs,
        question: format!("{word} {runs}?"),
        consequences,
        button,
        commands: commands.collect(),
    }
}

/// Consequences with the number of runs that each concerns.
fn lines(act: Act, selected: usize, found: &[Run]) -> Vec<Markup> {
    let number = |fits: fn(RunState) -> bool| found.iter().filter(|run| fits(run.status)).count();
    let lines = match act {
        Act::Cancel => [
            (
                number(|state| state == RunState::Queued),
                ("is waiting and ends at once.", "are waiting and end at once."),
            ),
            (
                number(RunState::is_held),
                (
                    "is held: its worker is asked to stop and has a grace period to confirm.",
                    "are held: their workers are asked to stop and have a grace period to confirm.",
                ),
            ),
            (
                number(RunState::is_terminal),
                ("has ended and is not affected.", "have ended and are not affected."),
            ),
        ],
        Act::Retry => [
            (
                number(|state| matches!(state, RunState::Failed | RunState::Cancelled)),
                (
                    "failed or was cancelled: a retry is queued unless there already is one.",
                    "failed or were cancelled: a retry of each is queued unless there already is one.",
                ),
            ),
            (
                number(|state| state == RunState::Success),
                ("succeeded and is not affected.", "succeeded and are not affected."),
            ),
            (
                number(|state| !state.is_terminal()),
                ("has not ended and is not affected.", "have not ended and are not affected."),
            ),
        ],
    };
    let gone = (selected - found.len().min(selected), ("does not exist any more.", "do not exist any more."));
    let shown = lines.into_iter().chain([gone]).filter(|(count, _)| *count > 0);
    shown
        .map(|(count, (one, many))| {
            html! { b { (count) } " " (if count == 1 { one } else { many }) }
        })
        .collect()
}
