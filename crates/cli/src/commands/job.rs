//! Jobs of graphs: show, why, retry.

use super::graph;
use super::graph_show::{agent_name, names, state, style, took};
use crate::args_graph::{JobCommand, JobName};
use crate::fail::Failure;
use crate::out::{Cell, Out, Style, printable};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::graph::definition::Command;
use tidemill_core::graph::record::{JobDetail, TaskRecord};
use tidemill_core::task::TaskResult;
use tidemill_store::RefusalCode;

pub(super) async fn command(client: Client, command: JobCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        JobCommand::Show { job } => {
            show(&client, &job.id, out).await.map_err(|failure| as_named(&job, failure))
        }
        JobCommand::Why { job } => {
            why(&client, &job.id, out).await.map_err(|failure| as_named(&job, failure))
        }
        JobCommand::Retry { job, watch } => {
            let retried = client.retry_job(&job.id).await;
            let retried = retried.map_err(|error| as_named(&job, error.into()))?;
            graph::tried_again(&client, &retried, watch, out).await
        }
    }
}

/// Whoever gave a run and a name has never seen the id that follows from them.
fn as_named(job: &JobName, failure: Failure) -> Failure {
    match &job.named {
        Some((run, name)) if failure.code == RefusalCode::UnknownJob.as_str() => {
            let message = format!("there is no job `{}` in {run}", printable(name));
            Failure::refused(message)
                .coded(RefusalCode::UnknownJob.as_str())
                .hint(format!("tidemill graph show {}", run.in_shell()))
        }
        _ => failure,
    }
}

async fn why(client: &Client, job: &str, out: Out) -> Result<ExitCode, Failure> {
    let why = client.why_job(job).await?;
    if out.is_json() {
        out.json(&why);
        return Ok(ExitCode::SUCCESS);
    }
    out.line(printable(&why.sentence));
    if let Some(hint) = why.hint {
        out.say(format!("hint: {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client, job: &str, out: Out) -> Result<ExitCode, Failure> {
    let detail = client.job(job).await?;
    if out.is_json() {
        out.json(&detail);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let why = client.why_job(job).await?;
    facts(&detail, &why.sentence, now, out);
    if !detail.tasks.is_empty() {
        out.line("");
        tasks(&detail.tasks, client, now, out).await?;
    }
    if !detail.outputs.is_empty() {
        out.line("");
        outputs(&detail, out);
    }
    out.line("");
    let rows: Vec<Vec<Cell>> = detail
        .changes
        .iter()
        .map(|change| {
            vec![
                times::relative(change.at, now).into(),
                Cell(change.to_code.to_string(), style(change.to_code)),
                change.message.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["WHEN", "BECAME", "NOTE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn facts(detail: &JobDetail, why: &str, now: Timestamp, out: Out) {
    let JobDetail { job, spec, .. } = detail;
    let line = |name: &str, value: String| out.line(format!("{name:<14}{}", printable(&value)));
    line("job", format!("{} of {}", job.name, job.run_id));
    line("id", job.job_id.clone());
    out.line(format!("{:<14}{}", "state", out.paint(&state(job), style(job.code))));
    line("why", why.to_owned());
    line(
        "runs",
        match &spec.run {
            Command::Shell(text) => text.trim().lines().collect::<Vec<_>>().join(" ⏎ "),
            Command::Words(words) => words.join(" "),
        },
    );
    if !spec.needs.is_empty() {
        line("needs", spec.needs.join(", "));
    }
    if !spec.labels.is_empty() {
        line("labels", spec.labels.join(", "));
    }
    if let Some(pool) = &spec.pool {
        line("pool", format!("{pool}, weight {}", spec.weight));
    }
    let took = took(job, now);
    if took != "–" {
        line("took", took);
    }
    if let Some(from) = &job.reused_from {
        line("reused from", from.clone());
    }
}

async fn tasks(tasks: &[TaskRecord], client: &Client, now: Timestamp, out: Out) -> Result<(), Failure> {
    let agents = names(client).await?;
    let rows: Vec<Vec<Cell>> = tasks
        .iter()
        .map(|task| {
            let stage = task.stage.map_or_else(|| "–".to_owned(), |stage| stage.to_string());
            vec![
                task.task_id.as_str().into(),
                agent_name(&agents, task.agent_id).into(),
                times::relative(task.created_at, now).into(),
                if task.active { Cell(stage, Style::Busy) } else { stage.into() },
                task.end.map_or_else(|| "–".to_owned(), |end| end.to_string()).into(),
                came_of(task.result.as_ref()).into(),
            ]
        })
        .collect();
    out.table(&["TASK", "AGENT", "MADE", "STAGE", "END", "RESULT"], &rows);
    Ok(())
}

/// What came of a task, in words.
fn came_of(result: Option<&TaskResult>) -> String {
    match result {
        None => "–".to_owned(),
        Some(TaskResult::Stopped) => "stopped".to_owned(),
        Some(TaskResult::Failed { message, .. }) => message.clone(),
        Some(TaskResult::Ended { exit_code, unmatched, hint, message }) => {
            let mut words = format!("exit code {exit_code}");
            if let Some(message) = message {
                words = format!("{words}: {message}");
            }
            if !unmatched.is_empty() {
                words = format!("{words}; nothing matched {}", unmatched.join(", "));
            }
            if !hint.is_empty() {
                words = format!("{words}; new files: {}", hint.join(", "));
            }
            words
        }
    }
}

fn outputs(detail: &JobDetail, out: Out) {
    let rows: Vec<Vec<Cell>> = detail
        .outputs
        .iter()
        .map(|file| {
            let digest: String = file.output.sha256.chars().take(12).collect();
            vec![
                file.output.name.as_str().into(),
                file.output.path.as_str().into(),
                format!("{} B", file.output.size_bytes).into(),
                digest.into(),
                file.output.url.clone().unwrap_or_else(|| "at its agent".to_owned()).into(),
            ]
        })
        .collect();
    out.table(&["OUTPUT", "FILE", "SIZE", "SHA-256", "WHERE"], &rows);
}
