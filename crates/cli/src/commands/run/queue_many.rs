//! `tidemill run queue --from FILE`: queues one run for each line of JSON, in batches.
//!
//! Each batch is one transaction. If a line is refused, its whole batch is; the batches before it stay queued.
//! A repeated command queues no run twice if the lines have idempotency keys or run ids.

use crate::failure::Failure;
use crate::out::Out;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::limits::{BATCH_MAX, METADATA_BYTES_MAX};
use tidemill_engine::Clock;
use tidemill_wire::runs::{BatchRun, batch_position};

/// Bytes of the lines of one batch. Servers accept bodies of 1 MB, and the ids and defaults need room too.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Bytes of one line: metadata of the largest size, and the other fields.
const LINE_BYTES_MAX: usize = METADATA_BYTES_MAX + 128 * 1024;
/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The lines that are read, and their position.
struct Input {
    /// Name for messages: the path, or `standard input`.
    name: String,
    reader: Box<dyn BufRead + Send>,
    line: usize,
}

/// Requests of one call, with the number of the line of each.
#[derive(Default)]
struct Batch {
    runs: Vec<BatchRun>,
    lines: Vec<usize>,
    /// The ids that this command made. A run with such an id is new, also if the
    /// response belongs to a repeated call.
    made_ids: Vec<Option<RunId>>,
    bytes: usize,
}

pub(super) async fn queue_many(client: &Client, from: &str, out: Out) -> Result<ExitCode, Failure> {
    let mut input = Input::open(from)?;
    // A token of one project may not choose ids. Idempotency keys have the same effect.
    let is_project_token = !client.info().await?.projects.is_all();
    let mut progress = Progress::new();
    loop {
        let read = input.read_batch(is_project_token);
        let batch = read.map_err(|failure| progress.with_count(failure))?;
        if batch.runs.is_empty() {
            break;
        }
        let Batch { runs, lines, made_ids, .. } = batch;
        let queued = client.queue_runs(runs).await;
        let queued = queued.map_err(|error| progress.with_count(input.name_line(error, &lines)))?;
        for (mut outcome, made_id) in queued.into_iter().zip(made_ids) {
            // The response to a retry reports "not created", although the first request created the run.
            outcome.created |= made_id.is_some_and(|id| id == outcome.run_id);
            progress.created += usize::from(outcome.created);
            progress.answered += 1;
            if out.is_json() {
                out.print_json(&outcome);
            } else {
                out.print(outcome.run_id.as_str());
            }
        }
        progress.show(out);
    }
    if progress.created < progress.answered {
        let known = progress.answered - progress.created;
        out.inform(format!("{known} of {} runs existed already", progress.answered));
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts of the command so far.
struct Progress {
    answered: usize,
    created: usize,
    shown: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { answered: 0, created: 0, shown: Instant::now() }
    }

    /// Prints the count at intervals, if standard error is a terminal and the ids go elsewhere.
    fn show(&mut self, out: Out) {
        let is_watched = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        if is_watched && self.shown.elapsed() >= PROGRESS_EVERY {
            self.shown = Instant::now();
            out.inform(format!("{} runs queued", self.answered));
        }
    }

    /// Adds the number of runs that stay queued to an error.
    fn with_count(&self, mut failure: Failure) -> Failure {
        if self.answered > 0 {
            let count = self.answered;
            failure.message = format!("{}; {count} runs of earlier lines stay queued", failure.message);
        }
        failure
    }
}

impl Input {
    fn open(from: &str) -> Result<Self, Failure> {
        let (name, reader): (_, Box<dyn BufRead + Send>) = if from == "-" {
            ("standard input".to_owned(), Box::new(BufReader::new(std::io::stdin())))
        } else {
            let failed = |error| Failure::usage(format!("could not read {from}: {error}"));
            (from.to_owned(), Box::new(BufReader::new(File::open(from).map_err(failed)?)))
        };
        Ok(Self { name, reader, line: 0 })
    }

    /// Reads the lines of the next batch. Empty lines are skipped.
    fn read_batch(&mut self, is_project_token: bool) -> Result<Batch, Failure> {
        let mut batch = Batch::default();
        while batch.runs.len() < BATCH_MAX && batch.bytes < BATCH_BYTES_MAX {
            let Some(text) = self.read_line()? else { break };
            if text.trim_ascii().is_empty() {
                continue;
            }
            let run: BatchRun =
                serde_json::from_slice(&text).map_err(|error| self.refuse(self.line, &error.to_string()))?;
            let (request, _) = run.clone().into_request();
            request.check().map_err(|invalid| self.refuse(self.line, &invalid.to_string()))?;
            batch.bytes += text.len();
            batch.runs.push(run);
            batch.lines.push(self.line);
        }
        // Ids of our own, so that the call can be retried when the response is lost.
        for (run, id) in batch.runs.iter_mut().zip(Clock::Database.run_ids(batch.lines.len())) {
            let mut made_id = None;
            if is_project_token {
                run.idempotency_key.get_or_insert_with(|| format!("cli-{id}"));
            } else if run.run.run_id.is_none() {
                made_id = Some(id.clone());
                run.run.run_id = Some(id);
            }
            batch.made_ids.push(made_id);
        }
        Ok(batch)
    }

    /// Reads one line of a bounded length.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut text = Vec::new();
        let mut bounded = std::io::Read::take(&mut self.reader, LINE_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut text);
        let length =
            read.map_err(|error| Failure::usage(format!("could not read {}: {error}", self.name)))?;
        if length == 0 {
            return Ok(None);
        }
        self.line += 1;
        if length > LINE_BYTES_MAX {
            return Err(self.refuse(self.line, &format!("is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(Some(text))
    }

    /// Error for one line.
    fn refuse(&self, line: usize, problem: &str) -> Failure {
        Failure::refused(format!("{}:{line}: {problem}", self.name)).with_code("invalid")
    }

    /// Replaces the positions in a refusal of the server with file and line.
    fn name_line(&self, error: Error, lines: &[usize]) -> Failure {
        let named = |text: &str| {
            let (position, rest) = batch_position(text)?;
            Some(format!("{}:{}: {rest}", self.name, lines.get(position)?))
        };
        let message = match &error {
            Error::Refused { problem, .. } if !problem.faults.is_empty() => {
                let faults = problem.faults.iter().map(|fault| format!("{} {}", fault.field, fault.problem));
                let named: Vec<String> = faults.map(|fault| named(&fault).unwrap_or(fault)).collect();
                Some(named.join("; "))
            }
            Error::Refused { problem, .. } => named(&problem.message),
            Error::Unreachable { .. }
            | Error::NotTidemill { .. }
            | Error::InvalidResponse(_)
            | Error::InvalidConfig(_) => None,
        };
        let mut failure = Failure::from(error);
        if let Some(message) = message {
            failure.message = message;
        }
        failure
    }
}
