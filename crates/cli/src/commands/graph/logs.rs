//! Output of the jobs of a graph.

use super::show::PAGE;
use crate::failure::Failure;
use crate::out::{Line, Out, Style};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::graph::record::{JobRecord, LogPiece};
use tidemill_core::task::job_id;
use tidemill_wire::graphs::{JobLogs, ListJobs, ReadLogs};

/// Time that the server waits for new output.
const WAIT_SECS: u16 = 20;
/// Log pieces per request.
const PIECES: u16 = 20;
/// Interval between two polls of several jobs.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Position in the log of a job.
#[derive(Debug, Clone, Copy)]
struct Position {
    attempt: i32,
    after: Option<i32>,
}

/// Prints the output of one job; with `follow` until it has ended, attempt by attempt.
pub(super) async fn print_job(
    client: &Client,
    run: &RunId,
    name: &str,
    attempt: Option<i32>,
    follow: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let id = job_id(run, name);
    if !client.job(&id).await.is_ok_and(|found| found.job.name == name) {
        // If the run does not exist either, that error is more useful.
        client.graph(run).await?;
        return Err(Failure::refused(format!("graph {run} has no job `{name}`"))
            .with_hint(format!("tidemill graph show {}", run.in_shell())));
    }
    let mut position = Position { attempt: attempt.unwrap_or(0), after: None };
    let mut last_attempt = 0;
    loop {
        let request = ReadLogs {
            attempt: Some(position.attempt).filter(|attempt| *attempt > 0),
            after: position.after,
            wait_secs: follow.then_some(WAIT_SECS),
            limit: Some(PIECES),
            ..ReadLogs::default()
        };
        let read = client.job_logs(&id, &request).await?;
        let Some(current) = read.attempt else {
            if read.is_over || !follow {
                out.inform(format!("job {name} has no output"));
                return Ok(ExitCode::SUCCESS);
            }
            continue;
        };
        if follow && last_attempt != 0 && last_attempt != current {
            out.inform(format!("— attempt {current}"));
        }
        (last_attempt, position.attempt) = (current, current);
        print_pieces(&read, name, Prefix::None, out);
        position.after = read.pieces.last().map(|piece| piece.seq).or(position.after);
        let is_full = read.pieces.len() == usize::from(PIECES);
        if is_full {
            continue;
        }
        if !follow || read.is_last && (attempt.is_some() || read.is_over) {
            return Ok(ExitCode::SUCCESS);
        }
        if read.is_last {
            // The attempt has ended and the job has not, so another attempt follows.
            position = next_attempt(client, &id, position).await?;
        }
    }
}

/// Waits for the next attempt of a job, or for its end.
async fn next_attempt(client: &Client, id: &str, position: Position) -> Result<Position, Failure> {
    loop {
        let job = client.job(id).await?.job;
        if job.tasks > position.attempt {
            return Ok(Position { attempt: position.attempt + 1, after: None });
        }
        if job.code.is_terminal() {
            return Ok(position);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Prints the output of all jobs, with the name of the job before each line; with `follow` until the graph has ended.
pub(super) async fn print_all(
    client: &Client,
    run: &RunId,
    follow: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let mut positions: BTreeMap<i32, Position> = BTreeMap::new();
    loop {
        let is_over = client.graph(run).await?.status.is_terminal();
        let mut after = None;
        loop {
            let request = ListJobs { after, limit: Some(PAGE), ..ListJobs::default() };
            let page = client.jobs(run, &request).await?;
            for job in page.items.iter().filter(|job| job.tasks > 0) {
                print_new(client, job, &mut positions, out).await?;
            }
            let Some(next) = page.next else { break };
            after = next.parse().ok();
        }
        if is_over || !follow {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Prints the new output of a job.
async fn print_new(
    client: &Client,
    job: &JobRecord,
    positions: &mut BTreeMap<i32, Position>,
    out: Out,
) -> Result<(), Failure> {
    let position = positions.entry(job.position).or_insert(Position { attempt: 1, after: None });
    while position.attempt <= job.tasks {
        let request = ReadLogs {
            attempt: Some(position.attempt),
            after: position.after,
            wait_secs: None,
            limit: Some(PIECES),
            ..ReadLogs::default()
        };
        let read = client.job_logs(&job.job_id, &request).await?;
        let prefix = if job.tasks > 1 { Prefix::Attempt } else { Prefix::Job };
        print_pieces(&read, &job.name, prefix, out);
        position.after = read.pieces.last().map(|piece| piece.seq).or(position.after);
        if read.pieces.len() == usize::from(PIECES) {
            continue;
        }
        if !read.is_last || position.attempt == job.tasks {
            break;
        }
        *position = Position { attempt: position.attempt + 1, after: None };
    }
    Ok(())
}

/// Prefix of each line.
#[derive(Debug, Clone, Copy)]
enum Prefix {
    None,
    Job,
    /// Job and number of the attempt.
    Attempt,
}

fn print_pieces(read: &JobLogs, name: &str, prefix: Prefix, out: Out) {
    let lines = |piece: &LogPiece| piece.lines.clone();
    for line in read.pieces.iter().flat_map(lines) {
        if out.is_json() {
            out.print_json(&serde_json::json!({
                "job": name, "attempt": read.attempt, "stream": line.stream, "text": line.text,
            }));
            continue;
        }
        let style = if line.stream == "stderr" { Style::Warning } else { Style::Plain };
        let text = out.output_line(&line.text, style);
        let prefix = match prefix {
            Prefix::None => Line::default(),
            Prefix::Job => out.paint(&format!("{name} |"), Style::Dim).and(" "),
            Prefix::Attempt => {
                let attempt = read.attempt.unwrap_or_default();
                out.paint(&format!("{name}#{attempt} |"), Style::Dim).and(" ")
            }
        };
        out.print(prefix.and(text));
    }
}
