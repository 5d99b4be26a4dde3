//! Several runs at once: what will become of each is said first, then there is one call of the door for each, and a
//! count of what came of it.

use crate::act::{Done, Form};
use crate::confirm::{Ask, SURE};
use crate::layout::Place;
use crate::oops::Oops;
use crate::visitor::Visitor;
use crate::words::{counted, run_link, state, subject};
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::run::{Cancelled, Run, RunState};
use tidemill_core::shell::command;
use tokio::task::JoinSet;

/// Runs that one form acts on.
const RUNS_MAX: usize = 200;

/// What is done to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Cancel,
    Retry,
}

/// Cancels or retries the runs that were selected.
pub(super) async fn bulk(visitor: Visitor, form: Form) -> Result<Response, Oops> {
    let mut runs: Vec<RunId> = Vec::new();
    for run in form.all("run").filter_map(|run| run.parse().ok()) {
        if !runs.contains(&run) {
            runs.push(run);
        }
        if runs.len() > RUNS_MAX {
            return Err(Oops::bad_form(format!("at most {RUNS_MAX} runs can be selected at once")));
        }
    }
    if runs.is_empty() {
        return Err(Oops::bad_form("no run is selected; tick those that are meant"));
    }
    let (code, act) = match form.field("act") {
        Some("cancel") => ("bulk-cancel", Act::Cancel),
        Some("retry") => ("bulk-retry", Act::Retry),
        Some(_) | None => return Err(Oops::bad_form("this form does not say what to do")),
    };
    // Whoever may not do it hears that from the door.
    if runs.len() > 1 && visitor.may_operate() && !form.is_ticked(SURE) {
        let found = read(&form.client, &runs).await?;
        return Ok(question(act, &runs, &found).show(&visitor, &form));
    }
    let mut count = 0;
    for run in &runs {
        let done = match act {
            Act::Cancel => {
                form.client.cancel_run(run, None).await.map(|answer| answer.outcome != Cancelled::Ended)
            }
            Act::Retry => form.client.retry_run(run).await.map(|_| true),
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

/// The runs that are there, in their order.
async fn read(client: &Client, runs: &[RunId]) -> Result<Vec<Run>, Error> {
    let mut asked: JoinSet<(usize, Result<Run, Error>)> = JoinSet::new();
    for (place, run) in runs.iter().enumerate() {
        let (client, run) = (client.clone(), run.clone());
        asked.spawn(async move { (place, client.run(&run).await) });
    }
    let mut found = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer.map_err(|error| Error::Unreadable(error.to_string()))? {
            (place, Ok(run)) => found.push((place, run)),
            (_, Err(Error::Refused { status, .. })) if status.as_u16() == 404 => {}
            (_, Err(error)) => return Err(error),
        }
    }
    found.sort_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, run)| run).collect())
}

fn question(act: Act, asked: &[RunId], found: &[Run]) -> Ask<'static> {
    let (verb, word, button) = match act {
        Act::Cancel => ("cancel", "Cancel", "Cancel them"),
        Act::Retry => ("retry", "Retry", "Retry them"),
    };
    let runs = counted(i64::try_from(asked.len()).unwrap_or(i64::MAX), "run", "runs");
    let happens = html! {
        ul { @for line in lines(act, asked.len(), found) { li { (line) } } }
        div.scroll { table { tbody { @for run in found {
            tr { td { (state(run.status)) } td { (run_link(&run.run_id)) " " (subject(run)) } }
        } } } }
    };
    let commands = asked.iter().map(|run| command(["run", verb, run.as_str()]));
    Ask {
        place: Place::Runs,
        question: format!("{word} {runs}?"),
        happens,
        button,
        commands: commands.collect(),
    }
}

/// What will happen to how many of them.
fn lines(act: Act, asked: usize, found: &[Run]) -> Vec<Markup> {
    let number = |fits: fn(RunState) -> bool| found.iter().filter(|run| fits(run.status)).count();
    let lines = match act {
        Act::Cancel => [
            (
                number(|state| state == RunState::Queued),
                ("waits, and ends at once.", "wait, and end at once."),
            ),
            (
                number(RunState::is_held),
                (
                    "is held: its worker is asked to stop, and has a grace period to confirm.",
                    "are held: their workers are asked to stop, and have a grace period to confirm.",
                ),
            ),
            (
                number(RunState::is_terminal),
                ("has ended: nothing happens to it.", "have ended: nothing happens to them."),
            ),
        ],
        Act::Retry => [
            (
                number(|state| matches!(state, RunState::Failed | RunState::Cancelled)),
                (
                    "failed or was cancelled: another try is queued, unless one was before.",
                    "failed or were cancelled: another try of each is queued, unless one was before.",
                ),
            ),
            (
                number(|state| state == RunState::Success),
                ("succeeded: nothing happens to it.", "succeeded: nothing happens to them."),
            ),
            (
                number(|state| !state.is_terminal()),
                ("has not ended: nothing happens to it.", "have not ended: nothing happens to them."),
            ),
        ],
    };
    let gone = (asked - found.len().min(asked), ("is not there any more.", "are not there any more."));
    let said = lines.into_iter().chain([gone]).filter(|(count, _)| *count > 0);
    said.map(|(count, (one, many))| {
        html! { b { (count) } " " (if count == 1 { one } else { many }) }
    })
    .collect()
}
