//! `tidemill job`: jobs of graphs.

use super::graph;
use super::graph::show::{agent_name, agent_names, describe_state, format_took, style};
use crate::failure::Failure;
use crate::out::{Cell, Line, Out, Style};
use crate::times;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::definition::Command;
use tidemill_core::graph::record::{JobDetail, TaskRecord};
use tidemill_core::task::TaskResult;
use tidemill_core::{RunId, Timestamp};
use tidemill_store::RefusalCode;

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show a job: its tasks, its state changes and its outputs
    #[command(after_help = "Example:\n  tidemill job show run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e/build")]
    Show {
        /// Id of the job, or RUN/NAME
        job: JobName,
    },
    /// Explain why a job is in its state
    #[command(after_help = "Example:\n  tidemill job why run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e/build")]
    Why {
        /// Id of the job, or RUN/NAME
        job: JobName,
    },
    /// Run a job of an ended graph again, and all jobs that depend on it
    #[command(
        after_help = "Example:\n  tidemill job retry run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e/build --watch"
    )]
    Retry {
        /// Id of the job, or RUN/NAME
        job: JobName,
        /// Follow the new run until it ends
        #[arg(long)]
        watch: bool,
    },
}

/// A job by its id, or by its run and name.
#[derive(Debug, Clone)]
pub(crate) struct JobName {
    /// Given, or derived from the run and the name.
    id: String,
    run_and_name: Option<(RunId, String)>,
}

impl std::str::FromStr for JobName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((run, name)) = text.split_once('/') {
            let run: RunId = run.parse().map_err(|error| format!("{error}"))?;
            let id = tidemill_core::task::job_id(&run, name);
            return Ok(Self { id, run_and_name: Some((run, name.to_owned())) });
        }
        let is_valid =
            (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_valid {
            Ok(Self { id: text.to_owned(), run_and_name: None })
        } else {
            Err("use the id of a job, or RUN/NAME".to_owned())
        }
    }
}

pub(super) async fn command(client: Client, command: JobCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        JobCommand::Show { job } => {
            show(&client, &job.id, out).await.map_err(|failure| with_name(&job, failure))
        }
        JobCommand::Why { job } => {
            why(&client, &job.id, out).await.map_err(|failure| with_name(&job, failure))
        }
        JobCommand::Retry { job, watch } => {
            let retried = client.retry_job(&job.id).await;
            let retried = retried.map_err(|error| with_name(&job, error.into()))?;
            graph::print_retry(&client, &retried, watch, out).await
        }
    }
}

/// Replaces the derived id in the error by the run and the name that the user gave.
fn with_name(job: &JobName, failure: Failure) -> Failure {
    match &job.run_and_name {
        Some((run, name)) if failure.code == RefusalCode::UnknownJob.as_str() => {
            let message = format!("job `{name}` does not exist in {run}");
            Failure::refused(message)
                .with_code(RefusalCode::UnknownJob.as_str())
                .with_hint(format!("tidemill graph show {}", run.in_shell()))
        }
        _ => failure,
    }
}

async fn why(client: &Client, job: &str, out: Out) -> Result<ExitCode, Failure> {
    let why = client.why_job(job).await?;
    if out.is_json() {
        out.print_json(&why);
        return Ok(ExitCode::SUCCESS);
    }
    out.print(why.sentence);
    if let Some(hint) = why.hint {
        out.inform(format!("hint: {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &Client, job: &str, out: Out) -> Result<ExitCode, Failure> {
    let detail = client.job(job).await?;
    if out.is_json() {
        out.print_json(&detail);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let why = client.why_job(job).await?;
    print_facts(&detail, &why.sentence, now, out);
    if !detail.tasks.is_empty() {
        out.print("");
        print_tasks(&detail.tasks, client, now, out).await?;
    }
    if !detail.outputs.is_empty() {
        out.print("");
        print_outputs(&detail, out);
    }
    out.print("");
    let rows: Vec<Vec<Cell>> = detail
        .changes
        .iter()
        .map(|change| {
            vec![
                times::format_relative(change.at, now).into(),
                Cell::new(change.to_code.to_string(), style(change.to_code)),
                change.message.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["WHEN", "STATE", "NOTE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn print_facts(detail: &JobDetail, why: &str, now: Timestamp, out: Out) {
    let JobDetail { job, spec, .. } = detail;
    let line = |name: &str, value: String| out.print(format!("{name:<14}{value}"));
    line("job", format!("{} of {}", job.name, job.run_id));
    line("id", job.job_id.clone());
    out.print(Line::from(format!("{:<14}", "state")).and(out.paint(&describe_state(job), style(job.code))));
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
    let limits = spec.limits.describe();
    if !limits.is_empty() {
        line("limits", limits.join(", "));
    }
    let took = format_took(job, now);
    if took != "–" {
        line("took", took);
    }
    if let Some(from) = &job.reused_from {
        line("reused from", from.clone());
    }
}

async fn print_tasks(tasks: &[TaskRecord], client: &Client, now: Timestamp, out: Out) -> Result<(), Failure> {
    let agents = agent_names(client).await?;
    let rows: Vec<Vec<Cell>> = tasks
        .iter()
        .map(|task| {
            let stage = task.stage.map_or_else(|| "–".to_owned(), |stage| stage.to_string());
            vec![
                task.task_id.as_str().into(),
                agent_name(&agents, task.agent_id).into(),
                times::format_relative(task.created_at, now).into(),
                if task.active { Cell::new(stage, Style::Active) } else { stage.into() },
                task.end.map_or_else(|| "–".to_owned(), |end| end.to_string()).into(),
                describe_task(task).into(),
            ]
        })
        .collect();
    out.print_table(&["TASK", "AGENT", "CREATED", "STAGE", "END", "RESULT"], &rows);
    Ok(())
}

/// Describes the result of a task, and the fields of its order that an older agent ignored.
fn describe_task(task: &TaskRecord) -> String {
    let result = describe_result(task.result.as_ref());
    if task.unknown.is_empty() {
        return result;
    }
    format!("{result}; the agent does not support {}, upgrade it", task.unknown.join(", "))
}

fn describe_result(result: Option<&TaskResult>) -> String {
    match result {
        None => "–".to_owned(),
        Some(TaskResult::Stopped) => "stopped".to_owned(),
        Some(TaskResult::Failed { message, .. }) => message.clone(),
        Some(TaskResult::Ended { exit_code, unmatched, hint, message }) => {
            let mut text = format!("exit code {exit_code}");
            if let Some(message) = message {
                text = format!("{text}: {message}");
            }
            if !unmatched.is_empty() {
                text = format!("{text}; no file matched {}", unmatched.join(", "));
            }
            if !hint.is_empty() {
                text = format!("{text}; new files: {}", hint.join(", "));
            }
            text
        }
    }
}

fn print_outputs(detail: &JobDetail, out: Out) {
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
                file.output.url.clone().unwrap_or_else(|| "on its agent".to_owned()).into(),
            ]
        })
        .collect();
    out.print_table(&["OUTPUT", "FILE", "SIZE", "SHA-256", "LOCATION"], &rows);
}
