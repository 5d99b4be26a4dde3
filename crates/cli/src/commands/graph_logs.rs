//! What jobs of a graph wrote.

use super::graph_show::PAGE;
use crate::fail::Failure;
use crate::out::{Out, Style, printable};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::graph::record::{JobRecord, LogPiece};
use tidemill_core::task::job_id;
use tidemill_wire::graphs::{JobLogs, ListJobs, ReadLogs};

/// How long one question waits for more.
const WAIT_SECS: u16 = 20;
/// Pieces of one answer.
const PIECES: u16 = 20;
/// Time between two rounds over several jobs.
const ROUND: Duration = Duration::from_millis(250);

/// Where a job's log was read to.
#[derive(Debug, Clone, Copy)]
struct Place {
    attempt: i32,
    after: Option<i32>,
}

/// Prints what a job wrote; with `follow` until it has ended, attempt after attempt.
pub(super) async fn one(
    client: &Client,
    run: &RunId,
    name: &str,
    attempt: Option<i32>,
    follow: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let id = job_id(run, name);
    if !client.job(&id).await.is_ok_and(|found| found.job.name == name) {
        // The run is asked first: its absence is the better answer.
        client.graph(run).await?;
        return Err(Failure::refused(format!("graph {run} has no job `{name}`"))
            .hint(format!("tidemill graph show {}", run.in_shell())));
    }
    let mut place = Place { attempt: attempt.unwrap_or(0), after: None };
    let mut told_attempt = 0;
    loop {
        let asked = ReadLogs {
            attempt: Some(place.attempt).filter(|attempt| *attempt > 0),
            after: place.after,
            wait_secs: follow.then_some(WAIT_SECS),
            limit: Some(PIECES),
            ..ReadLogs::default()
        };
        let read = client.job_logs(&id, &asked).await?;
        let Some(current) = read.attempt else {
            if read.is_over || !follow {
                out.say(format!("job {name} has written nothing"));
                return Ok(ExitCode::SUCCESS);
            }
            continue;
        };
        if follow && told_attempt != 0 && told_attempt != current {
            out.say(format!("— attempt {current}"));
        }
        (told_attempt, place.attempt) = (current, current);
        print(&read, name, Lead::None, out);
        place.after = read.pieces.last().map(|piece| piece.seq).or(place.after);
        let is_full = read.pieces.len() == usize::from(PIECES);
        if is_full {
            continue;
        }
        if !follow || read.is_last && (attempt.is_some() || read.is_over) {
            return Ok(ExitCode::SUCCESS);
        }
        if read.is_last {
            // This attempt is over and the job is not: the next one is awaited.
            place = next_attempt(client, &id, place).await?;
        }
    }
}

/// Waits for the next attempt of a job, or for its end.
async fn next_attempt(client: &Client, id: &str, place: Place) -> Result<Place, Failure> {
    loop {
        let job = client.job(id).await?.job;
        if job.tasks > place.attempt {
            return Ok(Place { attempt: place.attempt + 1, after: None });
        }
        if job.code.is_terminal() {
            return Ok(place);
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Prints what all jobs wrote, each line with the name of its job; with `follow` until the graph has ended.
pub(super) async fn all(client: &Client, run: &RunId, follow: bool, out: Out) -> Result<ExitCode, Failure> {
    let mut places: BTreeMap<i32, Place> = BTreeMap::new();
    loop {
        let is_over = client.graph(run).await?.status.is_terminal();
        let mut after = None;
        loop {
            let asked = ListJobs { after, limit: Some(PAGE), ..ListJobs::default() };
            let page = client.jobs(run, &asked).await?;
            for job in page.items.iter().filter(|job| job.tasks > 0) {
                read_on(client, job, &mut places, out).await?;
            }
            let Some(next) = page.next else { break };
            after = next.parse().ok();
        }
        if is_over || !follow {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Prints what a job wrote since the last round.
async fn read_on(
    client: &Client,
    job: &JobRecord,
    places: &mut BTreeMap<i32, Place>,
    out: Out,
) -> Result<(), Failure> {
    let place = places.entry(job.position).or_insert(Place { attempt: 1, after: None });
    while place.attempt <= job.tasks {
        let asked = ReadLogs {
            attempt: Some(place.attempt),
            after: place.after,
            wait_secs: None,
            limit: Some(PIECES),
            ..ReadLogs::default()
        };
        let read = client.job_logs(&job.job_id, &asked).await?;
        let lead = if job.tasks > 1 { Lead::Attempt } else { Lead::Job };
        print(&read, &job.name, lead, out);
        place.after = read.pieces.last().map(|piece| piece.seq).or(place.after);
        if read.pieces.len() == usize::from(PIECES) {
            continue;
        }
        if !read.is_last || place.attempt == job.tasks {
            break;
        }
        *place = Place { attempt: place.attempt + 1, after: None };
    }
    Ok(())
}

/// What stands before each line.
#[derive(Debug, Clone, Copy)]
enum Lead {
    /// Nothing: only one job is printed.
    None,
    /// The name of the job.
    Job,
    /// The name of the job, and which attempt it was.
    Attempt,
}

/// Prints pieces.
fn print(read: &JobLogs, name: &str, lead: Lead, out: Out) {
    let lines = |piece: &LogPiece| piece.lines.clone();
    for line in read.pieces.iter().flat_map(lines) {
        if out.is_json() {
            out.json(&serde_json::json!({
                "job": name, "attempt": read.attempt, "stream": line.stream, "text": line.text,
            }));
            continue;
        }
        let text = printable(&line.text);
        let text = if line.stream == "stderr" { out.paint(&text, Style::Odd) } else { text };
        let lead = match lead {
            Lead::None => String::new(),
            Lead::Job => format!("{name} |"),
            Lead::Attempt => format!("{name}#{} |", read.attempt.unwrap_or_default()),
        };
        if lead.is_empty() {
            out.line(text);
        } else {
            out.line(format!("{} {text}", out.paint(&lead, Style::Dim)));
        }
    }
}
