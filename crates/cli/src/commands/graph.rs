//! `tidemill graph`: graphs of dependent jobs.

pub(crate) mod args;
mod logs;
pub(super) mod show;
pub(super) mod watch;

use super::definition_file::{self, display_name};
use crate::failure::Failure;
use crate::out::Out;
use args::{GraphCommand, GraphSubmitArgs};
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::graph::{DefinitionError, parse, schema};
use tidemill_core::limits::GRAPH_BYTES_MAX;
use tidemill_core::run::CancelOutcome;
use tidemill_wire::graphs::{CancelGraph, NewGraph, RetryGraph};

/// Runs a command that needs no database.
pub(super) fn command_without_database(
    command: &GraphCommand,
    out: Out,
) -> Option<Result<ExitCode, Failure>> {
    match command {
        GraphCommand::Check { file } => Some(check(file, out)),
        GraphCommand::Schema => {
            out.print_document(&format!("{:#}", schema::schema()));
            Some(Ok(ExitCode::SUCCESS))
        }
        GraphCommand::Submit(_)
        | GraphCommand::Show { .. }
        | GraphCommand::Watch { .. }
        | GraphCommand::Cancel { .. }
        | GraphCommand::Retry { .. }
        | GraphCommand::Logs { .. } => None,
    }
}

pub(super) async fn command(client: Client, command: GraphCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        GraphCommand::Check { file } => check(&file, out),
        GraphCommand::Schema => Ok(ExitCode::SUCCESS),
        GraphCommand::Submit(args) => submit(&client, args, out).await,
        GraphCommand::Show { run } => show::show(&client, &run, out).await,
        GraphCommand::Watch { run } => watch::watch(&client, &run, out).await,
        GraphCommand::Cancel { run, jobs, reason } => cancel(&client, &run, jobs, reason, out).await,
        GraphCommand::Retry { run, jobs, watch } => retry(&client, &run, jobs, watch, out).await,
        GraphCommand::Logs { run, job, follow, attempt } => match job {
            Some(job) => logs::print_job(&client, &run, &job, attempt, follow, out).await,
            None => logs::print_all(&client, &run, follow, out).await,
        },
    }
}

fn read_text(file: &Path) -> Result<String, Failure> {
    let hint = "give the path of a graph file; the default is tidemill.graph.yaml";
    definition_file::read(file, GRAPH_BYTES_MAX, hint)
}

fn check(file: &Path, out: Out) -> Result<ExitCode, Failure> {
    let text = read_text(file)?;
    match parse(&text) {
        Ok(graph) => {
            let jobs: Vec<&str> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
            if out.is_json() {
                out.print_json(
                    &serde_json::json!({"is_sound": true, "name": graph.name, "jobs": jobs, "faults": []}),
                );
            } else {
                let count = if jobs.len() == 1 { "1 job".to_owned() } else { format!("{} jobs", jobs.len()) };
                out.print(format!("{} is valid: {count}", display_name(file)));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) if out.is_json() => {
            out.print_json(
                &serde_json::json!({"is_sound": false, "name": null, "jobs": [], "faults": errors}),
            );
            Ok(ExitCode::from(3))
        }
        Err(errors) => Err(report(file, &errors, out)),
    }
}

fn report(file: &Path, errors: &[DefinitionError], out: Out) -> Failure {
    definition_file::report(file, errors, "bad_graph", out)
}

async fn submit(client: &Client, args: GraphSubmitArgs, out: Out) -> Result<ExitCode, Failure> {
    let text = read_text(&args.file)?;
    if let Err(errors) = parse(&text) {
        return Err(report(&args.file, &errors, out));
    }
    let graph = NewGraph {
        project: args.project,
        env: args.env,
        text,
        only: args.only,
        workspace: args.workspace,
        rerun_needed: args.rerun_needed,
        priority: 0,
        git_sha: args.git_sha,
        git_ref: args.git_ref,
    };
    // With a key, the request can be retried when the response is lost.
    let has_own_key = args.key.is_some();
    let key = args.key.unwrap_or_else(|| format!("cli-{}", uuid::Uuid::new_v4()));
    let submitted = client.submit_graph(&graph, Some(key)).await?;
    if out.is_json() {
        out.print_json(&submitted);
    } else {
        out.print(submitted.run_id.as_str());
        if has_own_key && !submitted.created {
            out.inform("a graph with this key exists already; its run is printed");
        }
        if submitted.reused > 0 {
            out.inform(format!("{} of {} jobs are reused", submitted.reused, submitted.jobs));
        }
    }
    if args.watch {
        return watch::watch(client, &submitted.run_id, out).await;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn cancel(
    client: &Client,
    run: &RunId,
    jobs: Vec<String>,
    reason: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    let outcome = client.cancel_graph(run, &CancelGraph { jobs, reason }).await?;
    if outcome.outcome == CancelOutcome::Ended {
        let status = client.graph(run).await?.status;
        let message = format!("graph {run} has already ended: {status}");
        return Err(Failure::refused(message));
    }
    if out.is_json() {
        out.print_json(&outcome);
    } else if outcome.jobs == 0 {
        out.print(format!("graph {run} has no jobs left to cancel"));
    } else {
        let jobs = if outcome.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", outcome.jobs) };
        out.print(format!("{jobs} of graph {run} will stop; agents confirm started jobs"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn retry(
    client: &Client,
    run: &RunId,
    jobs: Vec<String>,
    watch: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let retried = client.retry_graph(run, &RetryGraph { jobs }).await?;
    print_retry(client, &retried, watch, out).await
}

/// Prints the id of the new run, and follows it if requested.
pub(super) async fn print_retry(
    client: &Client,
    retried: &tidemill_core::run::RetryOutcome,
    watch: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    if out.is_json() {
        out.print_json(retried);
    } else {
        out.print(retried.run_id.as_str());
        if !retried.created {
            out.inform("this graph was already retried; the id of that run is printed");
        }
    }
    if watch {
        return watch::watch(client, &retried.run_id, out).await;
    }
    Ok(ExitCode::SUCCESS)
}
