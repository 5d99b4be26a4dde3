//! `work -- CMD…`: a complete worker that carries each run out with a command, under a supervisor.

use crate::args::Work;
use crate::config::Config;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use crate::remote::Away;
use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{Applied, Claim, FinalStatus};
use tidemill_core::{Json, RunId, limits};
use tidemill_engine::worker::{
    Carrier, Door, Ended, Ending, RunLog, Sign, Stop, Worked, WorkerOptions, work_at,
};
use tidemill_engine::{Engine, Patience};
use tidemill_supervisor::{Control, End, Moment, Part, Report, Spec, Stream, Supervised};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// This very binary, even if its file was replaced since it was started.
const OWN_BINARY: &str = "/proc/self/exe";
/// Lines of standard error that go into the metadata of a failure.
const TAIL_LINES: usize = 20;
/// The longest wait before a worker looks again, told or not.
const LOOK: Duration = Duration::from_secs(1);
/// The same at a server, which tells at once.
const LOOK_FAR: Duration = Duration::from_secs(20);

/// Works until drained or stopped.
pub(super) async fn work(engine: Engine, config: &Config, work: Work, out: Out) -> Result<ExitCode, Failure> {
    let options = options(config, &work);
    let engine = engine.with_patience(Patience::Endless);
    let carrier = carrier(engine.with_patience(Patience::None), config, work, out);
    // Whoever reads that it waits may tell it to end.
    let stop = stop_signal();
    out.say(format!("worker {} waits for runs", options.name));
    let worked = engine.work(options, carrier, stop).await?;
    engine.store().close().await;
    Ok(tell(worked, out))
}

/// The same through a server. Upkeep is done there.
pub(super) async fn far(door: Away, config: &Config, work: Work, out: Out) -> Result<ExitCode, Failure> {
    // The server holds a claim back until there is something: there is no need to look often.
    let look = if work.drain { LOOK } else { LOOK_FAR };
    let options = WorkerOptions { upkeep: None, look, ..options(config, &work) };
    let carrier = carrier(door.clone(), config, work, out);
    let stop = stop_signal();
    out.say(format!("worker {} waits for runs", options.name));
    Ok(tell(work_at(door, Patience::Endless, options, carrier, stop).await?, out))
}

fn tell(worked: Worked, out: Out) -> ExitCode {
    if out.is_json() {
        out.json(&worked);
    } else {
        let counts = format!("{} claimed, {} finished", worked.claimed, worked.finished);
        out.say(if worked.drained { format!("{}; {counts}", super::workers::DRAINED) } else { counts });
    }
    ExitCode::SUCCESS
}

fn options(config: &Config, work: &Work) -> WorkerOptions {
    WorkerOptions {
        name: work.worker.clone().unwrap_or_else(environment::host),
        host: environment::host(),
        labels: work.labels.clone(),
        projects: (!work.projects.is_empty()).then(|| work.projects.clone()),
        slots: work.slots.map_or(config.slots, usize::from),
        ending: if work.drain { Ending::Drained } else { Ending::Never },
        beat: config.beat,
        look: LOOK,
        ending_max: work.grace.unwrap_or(config.grace) + Duration::from_secs(15),
        upkeep: (!work.no_upkeep).then(|| config.upkeep()),
    }
}

fn carrier<D: Door>(door: D, config: &Config, work: Work, out: Out) -> CommandCarrier<D> {
    CommandCarrier {
        door,
        worker: work.worker.unwrap_or_else(environment::host),
        argv: work.command,
        grace: work.grace.unwrap_or(config.grace),
        // The sweeper ends a run some time after a cancel or a timeout, told or not. The command must be dead by
        // then: we learn of a cancel with the next beat, and the kill itself takes a moment.
        grace_of_stop: Duration::from_secs(limits::CANCEL_GRACE_SECS).saturating_sub(config.beat * 2),
        // The kill must be over before the lease can move: leave it a beat's time, at least.
        contact_max: config.dead_after.saturating_sub(config.beat.max(Duration::from_millis(500))),
        out,
    }
}

/// Becomes true when the process is told to end, from this call on: before it, a signal ends the process at once.
pub(super) fn stop_signal() -> watch::Receiver<bool> {
    let (told, stop) = watch::channel(false);
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = told.send(true);
        // The sender must live on: a receiver takes its end for a signal.
        std::future::pending::<()>().await;
    });
    stop
}

/// Waits until the process is told to end.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|told| *told).await;
}

/// Carries runs out with a command.
struct CommandCarrier<D> {
    door: D,
    worker: String,
    argv: Vec<String>,
    grace: Duration,
    grace_of_stop: Duration,
    contact_max: Duration,
    out: Out,
}

impl<D: Door> Carrier for CommandCarrier<D> {
    type Moment = Moment;

    fn moment(&self) -> Moment {
        Moment::now()
    }

    async fn carry(&self, claim: Claim, log: RunLog, sign: watch::Receiver<Sign<Moment>>) -> Ended {
        let spec = self.spec(&claim, sign.borrow().contact);
        match Supervised::spawn(Path::new(OWN_BINARY), &["supervise"], &spec).await {
            Ok(child) => {
                let control = child.control();
                let job = Job {
                    carrier: self,
                    claim,
                    log,
                    control,
                    said: 0,
                    pending: VecDeque::new(),
                    tail: VecDeque::new(),
                    stop: None,
                };
                job.follow(child, sign).await
            }
            Err(error) => failed(&format!("the command could not be supervised: {error}")),
        }
    }

    fn finished(&self, run: &RunId, ended: &Ended, applied: Option<Applied>) {
        match (ended, applied) {
            (Ended::With(status, _), Some(Applied::Applied | Applied::Duplicate)) => {
                tracing::info!(run.id = %run, "run {run} ended: {status}");
                if self.out.is_json() {
                    self.out.json(&serde_json::json!({"run_id": run, "status": status}));
                }
            }
            (Ended::With(status, _), _) => {
                tracing::warn!(run.id = %run, "run {run} belongs to others; its end ({status}) changed nothing");
            }
            (Ended::Interrupted, _) => {
                tracing::warn!(run.id = %run, "run {run} was interrupted; another worker carries its request on");
            }
        }
    }
}

impl<D> CommandCarrier<D> {
    /// What to run for a claim: the run on standard input and in the environment, and no way to the database.
    fn spec(&self, claim: &Claim, contact: Moment) -> Spec {
        let mut env = vec![
            ("TIDEMILL_RUN_ID".to_owned(), claim.run_id.to_string()),
            ("TIDEMILL_PROJECT".to_owned(), claim.project_id.clone()),
            ("TIDEMILL_ENV".to_owned(), claim.env_id.name().to_owned()),
            ("TIDEMILL_ATTEMPT".to_owned(), claim.attempt.to_string()),
            ("TIDEMILL_EPOCH".to_owned(), claim.epoch.to_string()),
        ];
        if let Some(sha) = &claim.git_sha {
            env.push(("TIDEMILL_GIT_SHA".to_owned(), sha.clone()));
        }
        if let Some(reference) = &claim.git_ref {
            env.push(("TIDEMILL_GIT_REF".to_owned(), reference.clone()));
        }
        let mut stdin = serde_json::to_vec(claim).unwrap_or_default();
        stdin.push(b'\n');
        Spec {
            command: self.argv.clone(),
            env,
            env_remove: environment::secrets(),
            dir: None,
            stdin,
            contact,
            contact_max: self.contact_max,
            // A line must fit into an event; bytes that are not UTF-8 grow, and are split once more below.
            line_bytes_max: limits::MESSAGE_BYTES_MAX,
        }
    }
}

/// Why the command was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Cancelled,
    Lost,
    Shutdown,
    TimedOut,
}

/// One run with its command.
struct Job<'w, D> {
    carrier: &'w CommandCarrier<D>,
    claim: Claim,
    log: RunLog,
    control: Control,
    /// Lines so far; each has its own key, so that it is written once.
    said: u64,
    /// Events that the log has not taken yet: while it is full, the command waits, and we still heed signs.
    pending: VecDeque<NewEvent>,
    tail: VecDeque<String>,
    stop: Option<Told>,
}

impl<D: Door> Job<'_, D> {
    /// Follows the command to its end.
    async fn follow(mut self, mut child: Supervised, mut sign: watch::Receiver<Sign<Moment>>) -> Ended {
        let timeout = self.claim.timeout_secs.and_then(|secs| u64::try_from(secs).ok());
        let deadline = timeout.map(|secs| Instant::now() + Duration::from_secs(secs));
        let log = self.log.clone();
        loop {
            tokio::select! {
                place = log.place(), if !self.pending.is_empty() => {
                    if let Some(event) = self.pending.pop_front() {
                        place.put(event);
                    }
                }
                report = child.next(), if self.pending.is_empty() => match report {
                    Ok(Some(Report::Started { pid })) => self.started(pid),
                    Ok(Some(Report::Output { stream, text, part })) => self.said(stream, &text, part),
                    Ok(Some(Report::Exited(end))) => return self.ended(&end).await,
                    Ok(None) => return failed("the supervisor ended without a word"),
                    Err(error) => return failed(&format!("the supervisor was lost: {error}")),
                },
                changed = sign.changed() => {
                    let now = *sign.borrow_and_update();
                    if changed.is_ok() {
                        self.heed(now).await;
                    }
                }
                () = sleep_until(deadline), if self.stop.is_none() => self.tell(Told::TimedOut).await,
            }
        }
    }

    async fn heed(&mut self, sign: Sign<Moment>) {
        self.control.contact(sign.contact);
        match sign.stop {
            Some(Stop::Lost) => self.tell(Told::Lost).await,
            Some(Stop::Cancelled) => self.tell(Told::Cancelled).await,
            Some(Stop::Shutdown) => self.tell(Told::Shutdown).await,
            None => {}
        }
    }

    /// Tells the command to end, once for each reason that is worse than the one before.
    async fn tell(&mut self, told: Told) {
        if told == Told::Lost {
            self.stop = Some(told);
            self.control.kill().await;
        } else if self.stop.is_none() {
            self.stop = Some(told);
            let carrier = self.carrier;
            let grace = match told {
                Told::Cancelled | Told::TimedOut => carrier.grace.min(carrier.grace_of_stop),
                Told::Shutdown | Told::Lost => carrier.grace,
            };
            self.control.stop(grace).await;
        }
    }

    fn started(&mut self, pid: i32) {
        let mut event = NewEvent::new(Level::Info, "Command started").keyed("started");
        event.payload = serde_json::json!({"worker": self.carrier.worker, "pid": pid});
        self.pending.push_back(event);
    }

    fn said(&mut self, stream: Stream, text: &str, part: Part) {
        let level = match stream {
            Stream::Stdout => Level::Info,
            Stream::Stderr => Level::Warn,
        };
        if stream == Stream::Stderr {
            if self.tail.len() == TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(text.chars().take(1_000).collect());
        }
        let pieces = pieces(text, limits::MESSAGE_BYTES_MAX);
        let last = pieces.len() - 1;
        for (place, piece) in pieces.into_iter().enumerate() {
            self.said += 1;
            let part = match part {
                Part::Whole if last == 0 => None,
                Part::Whole | Part::Last if place == last => Some("last"),
                Part::Whole | Part::Last | Part::Piece => Some("piece"),
            };
            let mut event = NewEvent::new(level, piece).keyed(format!("line-{}", self.said));
            event.payload = match part {
                None => serde_json::json!({"stream": stream.as_str()}),
                Some(part) => serde_json::json!({"stream": stream.as_str(), "part": part}),
            };
            self.pending.push_back(event);
        }
    }

    /// What the end of the command means for the run.
    async fn ended(mut self, end: &End) -> Ended {
        for event in std::mem::take(&mut self.pending) {
            self.log.append(event).await;
        }
        let mut metadata = serde_json::Map::new();
        match end {
            End::Code(code) => {
                metadata.insert("exit_code".to_owned(), (*code).into());
            }
            End::Signal(number) => {
                metadata.insert("signal".to_owned(), (*number).into());
            }
            End::NotStarted { .. } | End::LostContact => {}
        }
        match self.stop {
            Some(Told::Cancelled) => {
                self.add_cancel(&mut metadata).await;
                return Ended::With(FinalStatus::Cancelled, Json::Object(metadata));
            }
            Some(Told::TimedOut) => {
                let limit = self.claim.timeout_secs.unwrap_or_default();
                metadata.insert("error".to_owned(), format!("the run took longer than {limit} s").into());
            }
            // Whoever held on to the end has a result; whoever was cut off has none.
            Some(Told::Shutdown | Told::Lost) if !end.is_success() => return Ended::Interrupted,
            Some(Told::Shutdown | Told::Lost) | None if end.is_success() => {
                return Ended::With(FinalStatus::Success, Json::Object(metadata));
            }
            Some(Told::Shutdown | Told::Lost) | None => {
                metadata.insert("error".to_owned(), end.to_string().into());
            }
        }
        if matches!(end, End::LostContact) {
            return Ended::Interrupted;
        }
        if !self.tail.is_empty() {
            let tail: Vec<String> = self.tail.into();
            metadata.insert("stderr".to_owned(), tail.join("\n").into());
        }
        Ended::With(FinalStatus::Failed, Json::Object(metadata))
    }

    /// Who cancelled the run and why, where this worker may read it.
    async fn add_cancel(&self, metadata: &mut serde_json::Map<String, Json>) {
        if let Ok(run) = self.carrier.door.run(&self.claim.run_id).await {
            if let Some(by) = run.cancel_requested_by {
                metadata.insert("cancelled_by".to_owned(), by.into());
            }
            if let Some(reason) = run.cancel_reason {
                metadata.insert("reason".to_owned(), reason.into());
            }
        }
    }
}

/// A text in pieces of at most so many bytes, cut between characters. Never empty.
fn pieces(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > bytes_max {
        let cut = rest.floor_char_boundary(bytes_max);
        let (piece, more) = rest.split_at(cut);
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

fn failed(error: &str) -> Ended {
    Ended::With(FinalStatus::Failed, serde_json::json!({"error": error}))
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn a_long_text_is_cut_between_characters_and_loses_nothing() {
        let text = "äöü".repeat(10);
        let cut = pieces(&text, 7);
        assert!(cut.iter().all(|piece| piece.len() <= 7) && cut.len() > 8);
        assert_eq!(cut.concat(), text);
        assert_eq!(pieces("", 7), [""]);
    }
}
