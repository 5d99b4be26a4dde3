//! `work -- CMD…`: a complete worker that carries each run out with a command, under a supervisor.

mod deadline;
mod output;

use crate::args::Work;
use crate::config::Config;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use crate::remote::Away;
use deadline::{Cause, Ending as CommandEnding, Reason};
use output::Output;
use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{Applied, Claim, FinalStatus};
use tidemill_core::{Json, RunId, limits};
use tidemill_engine::worker::{Carrier, Door, Ended, Ending, RunLog, Sign, Worked, WorkerOptions, work_at};
use tidemill_engine::{Engine, Patience};
use tidemill_supervisor::{Control, End, Moment, Report, Spec, Supervised};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// This very binary, even if its file was replaced since it was started.
const OWN_BINARY: &str = "/proc/self/exe";
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
        contact_max: deadline::contact_max(config.dead_after, config.beat),
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
    contact_max: Duration,
    out: Out,
}

impl<D: Door> Carrier for CommandCarrier<D> {
    type Moment = Moment;

    fn moment(&self) -> Moment {
        Moment::now()
    }

    async fn carry(&self, claim: Claim, log: RunLog, sign: watch::Receiver<Sign<Moment>>) -> Ended {
        let first = *sign.borrow();
        if first.cancelled.is_some() {
            // Cancelled before its command could begin.
            let mut metadata = serde_json::Map::new();
            self.add_cancel(&claim.run_id, &mut metadata).await;
            return Ended::With(FinalStatus::Cancelled, Json::Object(metadata));
        }
        let spec = self.spec(&claim, first.contact);
        match Supervised::spawn(Path::new(OWN_BINARY), &["supervise"], &spec).await {
            Ok(child) => {
                let control = child.control();
                let job = Job {
                    carrier: self,
                    claim,
                    log,
                    control,
                    pending: VecDeque::new(),
                    output: Output::new(limits::RUN_LOG_BYTES_MAX),
                    ending: CommandEnding::default(),
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

impl<D: Door> CommandCarrier<D> {
    /// Who cancelled the run and why, where this worker may read it.
    async fn add_cancel(&self, run: &RunId, metadata: &mut serde_json::Map<String, Json>) {
        if let Ok(run) = self.door.run(run).await {
            if let Some(by) = run.cancel_requested_by {
                metadata.insert("cancelled_by".to_owned(), by.into());
            }
            if let Some(reason) = run.cancel_reason {
                metadata.insert("reason".to_owned(), reason.into());
            }
        }
    }

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

/// One run with its command.
struct Job<'w, D> {
    carrier: &'w CommandCarrier<D>,
    claim: Claim,
    log: RunLog,
    control: Control,
    /// Events that the log has not taken yet: while it is full, the command waits, and we still heed signs.
    pending: VecDeque<NewEvent>,
    output: Output,
    ending: CommandEnding,
}

impl<D: Door> Job<'_, D> {
    /// Follows the command to its end.
    async fn follow(mut self, mut child: Supervised, mut sign: watch::Receiver<Sign<Moment>>) -> Ended {
        // The database counts from the first event, which comes later.
        let timeout = self.claim.timeout_secs.and_then(|secs| u64::try_from(secs).ok());
        let times_out_at = timeout.map(|secs| Moment::now().after(Duration::from_secs(secs)));
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
                    Ok(Some(Report::Output { stream, text, part })) => {
                        self.pending.extend(self.output.events(stream, &text, part));
                    }
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
                at = reached(times_out_at), if !self.ending.is_timed_out() => self.time_out(at).await,
            }
        }
    }

    async fn heed(&mut self, sign: Sign<Moment>) {
        self.control.contact(sign.contact);
        let now = Moment::now();
        let deadline = self.ending.heed(&sign, self.carrier.grace, now);
        self.stop_by(deadline, now).await;
    }

    async fn time_out(&mut self, at: Moment) {
        let now = Moment::now();
        let deadline = self.ending.add(Reason::TimedOut(at), self.carrier.grace, now);
        self.stop_by(deadline, now).await;
    }

    /// Tells the command to end. The supervisor kills it at the earliest deadline that it was told.
    async fn stop_by(&self, deadline: Option<Moment>, now: Moment) {
        match deadline {
            Some(deadline) if deadline <= now => self.control.kill().await,
            Some(deadline) => self.control.stop(now.until(deadline)).await,
            None => {}
        }
    }

    fn started(&mut self, pid: i32) {
        let mut event = NewEvent::new(Level::Info, "Command started").keyed("started");
        event.payload = serde_json::json!({"worker": self.carrier.worker, "pid": pid});
        self.pending.push_back(event);
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
        match self.ending.cause() {
            Cause::Cancelled => {
                self.carrier.add_cancel(&self.claim.run_id, &mut metadata).await;
                return Ended::With(FinalStatus::Cancelled, Json::Object(metadata));
            }
            Cause::TimedOut => {
                let limit = self.claim.timeout_secs.unwrap_or_default();
                metadata.insert("error".to_owned(), format!("the run took longer than {limit} s").into());
            }
            // A command that ended well has a result, whatever it was told meanwhile.
            Cause::Interrupted | Cause::Own if end.is_success() => {
                return Ended::With(FinalStatus::Success, Json::Object(metadata));
            }
            Cause::Interrupted => return Ended::Interrupted,
            Cause::Own => {
                metadata.insert("error".to_owned(), end.to_string().into());
            }
        }
        if matches!(end, End::LostContact) {
            return Ended::Interrupted;
        }
        if let Some(tail) = self.output.tail() {
            metadata.insert("stderr".to_owned(), tail.into());
        }
        Ended::With(FinalStatus::Failed, Json::Object(metadata))
    }
}

fn failed(error: &str) -> Ended {
    Ended::With(FinalStatus::Failed, serde_json::json!({"error": error}))
}

/// Waits until a moment has come, if there is one.
async fn reached(moment: Option<Moment>) -> Moment {
    let Some(moment) = moment else { return std::future::pending().await };
    tokio::time::sleep(Moment::now().until(moment)).await;
    moment
}
