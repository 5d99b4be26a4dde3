//! Graphs: check, submit, show, watch, cancel, retry, logs, and the schema of their files.

use super::{graph_logs, graph_show, graph_watch};
use crate::args_graph::{GraphCommand, Submit};
use crate::fail::Failure;
use crate::out::{Out, Style, printable};
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::graph::{GraphFault, parse, schema};
use tidemill_core::limits::GRAPH_BYTES_MAX;
use tidemill_core::run::Cancelled;
use tidemill_wire::graphs::{CancelGraph, NewGraph, RetryGraph};

/// What needs no database: a file is read, and looked at.
pub(super) fn alone(command: &GraphCommand, out: Out) -> Option<Result<ExitCode, Failure>> {
    match command {
        GraphCommand::Check { file } => Some(check(file, out)),
        GraphCommand::Schema => {
            out.line(format!("{:#}", schema::schema()));
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
        GraphCommand::Submit(order) => submit(&client, order, out).await,
        GraphCommand::Show { run } => graph_show::show(&client, &run, out).await,
        GraphCommand::Watch { run } => graph_watch::watch(&client, &run, out).await,
        GraphCommand::Cancel { run, jobs, reason } => cancel(&client, &run, jobs, reason, out).await,
        GraphCommand::Retry { run, jobs, watch } => retry(&client, &run, jobs, watch, out).await,
        GraphCommand::Logs { run, job, follow, attempt } => match job {
            Some(job) => graph_logs::one(&client, &run, &job, attempt, follow, out).await,
            None => graph_logs::all(&client, &run, follow, out).await,
        },
    }
}

/// The text of a file, or of the standard input.
fn text(file: &Path) -> Result<String, Failure> {
    let unread = |error: std::io::Error| Failure::usage(format!("could not read {}: {error}", shown(file)));
    let mut text = String::new();
    let most = u64::try_from(GRAPH_BYTES_MAX).unwrap_or(u64::MAX);
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(most + 1).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).map_err(|error| {
            unread(error).hint("name the file of the graph; tidemill.graph.yaml is the default")
        })?;
        opened.take(most + 1).read_to_string(&mut text)
    };
    read.map_err(unread)?;
    if text.len() > GRAPH_BYTES_MAX {
        let message = format!("{} is larger than {GRAPH_BYTES_MAX} bytes", shown(file));
        return Err(Failure::refused(message));
    }
    Ok(text)
}

fn shown(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

fn check(file: &Path, out: Out) -> Result<ExitCode, Failure> {
    let text = text(file)?;
    match parse(&text) {
        Ok(graph) => {
            let jobs: Vec<&str> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
            if out.is_json() {
                out.json(
                    &serde_json::json!({"is_sound": true, "name": graph.name, "jobs": jobs, "faults": []}),
                );
            } else {
                let count = if jobs.len() == 1 { "1 job".to_owned() } else { format!("{} jobs", jobs.len()) };
                out.line(format!("{} is sound: {count}", shown(file)));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(faults) if out.is_json() => {
            out.json(&serde_json::json!({"is_sound": false, "name": null, "jobs": [], "faults": faults}));
            Ok(ExitCode::from(3))
        }
        Err(faults) => Err(told(file, &faults, out)),
    }
}

/// Tells every fault at its place, and what is left to say.
fn told(file: &Path, faults: &[GraphFault], out: Out) -> Failure {
    for fault in faults {
        let place = format!("{}:{}:{}:", shown(file), fault.line, fault.column);
        out.say(format!("{} {}", out.paint(&place, Style::Bold), printable(&fault.message)));
        if let Some(hint) = &fault.hint {
            out.say(format!("    hint: {}", printable(hint)));
        }
    }
    let count = if faults.len() == 1 { "1 fault".to_owned() } else { format!("{} faults", faults.len()) };
    Failure::refused(format!("{} has {count}", shown(file))).coded("bad_graph")
}

async fn submit(client: &Client, order: Submit, out: Out) -> Result<ExitCode, Failure> {
    let text = text(&order.file)?;
    if let Err(faults) = parse(&text) {
        return Err(told(&order.file, &faults, out));
    }
    let graph = NewGraph {
        project: order.project,
        env: order.env,
        text,
        only: order.only,
        workspace: order.workspace,
        rerun_needed: order.rerun_needed,
        priority: 0,
        git_sha: order.git_sha,
        git_ref: order.git_ref,
    };
    // A key of our own makes it safe to ask again where an answer is lost.
    let given = order.key.is_some();
    let key = order.key.unwrap_or_else(|| format!("cli-{}", uuid::Uuid::new_v4()));
    let submitted = client.submit_graph(&graph, Some(key)).await?;
    if out.is_json() {
        out.json(&submitted);
    } else {
        out.line(submitted.run_id.as_str());
        if given && !submitted.created {
            out.say("this key was used before: that graph is shown");
        }
        if submitted.reused > 0 {
            out.say(format!("{} of {} jobs are reused", submitted.reused, submitted.jobs));
        }
    }
    if order.watch {
        return graph_watch::watch(client, &submitted.run_id, out).await;
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
    let done = client.cancel_graph(run, &CancelGraph { jobs, reason }).await?;
    if done.outcome == Cancelled::Ended {
        let status = client.graph(run).await?.status;
        let message = format!("graph {run} has ended as {status}: there is nothing to cancel");
        return Err(Failure::refused(message));
    }
    if out.is_json() {
        out.json(&done);
    } else if done.jobs == 0 {
        out.line(format!("nothing of graph {run} was left to stop, or it was asked to before"));
    } else {
        let jobs = if done.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", done.jobs) };
        out.line(format!("{jobs} of graph {run} will stop; agents confirm what they had begun"));
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
    tried_again(client, &retried, watch, out).await
}

/// Says which run tries again, and follows it where asked.
pub(super) async fn tried_again(
    client: &Client,
    retried: &tidemill_core::run::Retried,
    watch: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    if out.is_json() {
        out.json(retried);
    } else {
        out.line(retried.run_id.as_str());
        if !retried.created {
            out.say("this graph had been tried again before; that try is shown");
        }
    }
    if watch {
        return graph_watch::watch(client, &retried.run_id, out).await;
    }
    Ok(ExitCode::SUCCESS)
}
