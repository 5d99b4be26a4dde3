//! `tidemill work`: a worker that executes a command for each run, under a supervisor.

pub(crate) mod args;
mod deadline;
mod output;

use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::out::Out;
use crate::remote::RemoteServer;
use args::WorkArgs;
use deadline::{Cause, CommandEnding, Reason};
use output::Output;
use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus};
use tidemill_core::{Json, RunId, limits};
use tidemill_engine::worker::{
    ExecutionOutcome, Executor, ExitCondition, RunLog, RunSignal, Transport, WorkerOptions, WorkerSummary,
    work_with_transport,
};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_supervisor::{BootInstant, Control, End, Report, Spec, SupervisedCommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The running binary, even if its file was replaced since the start.
const OWN_BINARY: &str = "/proc/self/exe";
/// Polling interval, in case a notification is lost.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Polling interval with a server, which holds claims back until a run is available.
const REMOTE_POLL_EVERY: Duration = Duration::from_secs(20);

/// Executes runs until SIGTERM or until the worker is drained.
pub(super) async fn work(
    engine: Engine,
    config: &Config,
    args: WorkArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let options = options(config, &args);
    let engine = engine.with_retry_policy(RetryPolicy::Endless);
    let executor = executor(engine.with_retry_policy(RetryPolicy::None), config, args, out);
    // Before the message: a user may send SIGTERM as soon as it is printed.
    let stop = stop_signal();
    out.inform(format!("worker {} waits for runs", options.name));
    let summary = engine.work(options, executor, stop).await?;
    engine.store().close().await;
    Ok(print_summary(&summary, out))
}

/// Executes runs of a remote server, which runs the maintenance loops.
pub(super) async fn work_remotely(
    server: RemoteServer,
    config: &Config,
    args: WorkArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let poll_every = if args.drain { POLL_EVERY } else { REMOTE_POLL_EVERY };
    let options = WorkerOptions { upkeep: None, poll_every, ..options(config, &args) };
    let executor = executor(server.clone(), config, args, out);
    let stop = stop_signal();
    out.inform(format!("worker {} waits for runs", options.name));
    let summary = work_with_transport(server, RetryPolicy::Endless, options, executor, stop).await?;
    Ok(print_summary(&summary, out))
}

fn print_summary(summary: &WorkerSummary, out: Out) -> ExitCode {
    if out.is_json() {
        out.print_json(summary);
    } else {
        let counts = format!("{} claimed, {} finished", summary.claimed, summary.finished);
        out.inform(if summary.drained { format!("{}; {counts}", super::worker::DRAINED) } else { counts });
    }
    ExitCode::SUCCESS
}

fn options(config: &Config, args: &WorkArgs) -> WorkerOptions {
    WorkerOptions {
        name: args.worker.clone().unwrap_or_else(environment::host),
        host: environment::host(),
        labels: args.labels.clone(),
        projects: (!args.projects.is_empty()).then(|| args.projects.clone()),
        slots: args.slots.map_or(config.slots, usize::from),
        exit_when: if args.drain { ExitCondition::Drained } else { ExitCondition::Never },
        heartbeat_every: config.beat,
        poll_every: POLL_EVERY,
        shutdown_timeout: args.grace.unwrap_or(config.grace) + Duration::from_secs(15),
        upkeep: (!args.no_upkeep).then(|| config.upkeep()),
    }
}

fn executor<T: Transport>(transport: T, config: &Config, args: WorkArgs, out: Out) -> CommandExecutor<T> {
    CommandExecutor {
        transport,
        worker: args.worker.unwrap_or_else(environment::host),
        argv: args.command,
        grace: args.grace.unwrap_or(config.grace),
        contact_max: deadline::contact_max(config.dead_after, config.beat),
        out,
    }
}

/// Installs handlers for SIGTERM and SIGINT, which set the returned value to true.
pub(super) fn stop_signal() -> watch::Receiver<bool> {
    let (sender, stop) = watch::channel(false);
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        let _ = sender.send(true);
        // The sender must not be dropped, because receivers take its end for a signal.
        std::future::pending::<()>().await;
    });
    stop
}

/// Waits until the process receives SIGTERM or SIGINT.
pub(super) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

/// Executes runs with a command.
struct CommandExecutor<T> {
    transport: T,
    worker: String,
    argv: Vec<String>,
    grace: Duration,
    contact_max: Duration,
    out: Out,
}

impl<T: Transport> Executor for CommandExecutor<T> {
    type Moment = BootInstant;

    fn moment(&self) -> BootInstant {
        BootInstant::now()
    }

    async fn execute(
        &self,
        claim: Claim,
        log: RunLog,
        signals: watch::Receiver<RunSignal<BootInstant>>,
    ) -> ExecutionOutcome {
        let first = *signals.borrow();
        if first.cancelled.is_some() {
            // Cancelled before the command started.
            let mut metadata = serde_json::Map::new();
            self.add_cancel(&claim.run_id, &mut metadata).await;
            return ExecutionOutcome::Finished(FinalStatus::Cancelled, Json::Object(metadata));
        }
        let spec = self.spec(&claim, first.contact);
        match SupervisedCommand::spawn(Path::new(OWN_BINARY), &["supervise"], &spec).await {
            Ok(child) => {
                let control = child.control();
                let running = RunningCommand {
                    executor: self,
                    claim,
                    log,
                    control,
                    pending: VecDeque::new(),
                    output: Output::new(limits::RUN_LOG_BYTES_MAX),
                    ending: CommandEnding::default(),
                };
                running.follow(child, signals).await
            }
            Err(error) => failed(&format!("the command could not be supervised: {error}")),
        }
    }

    fn finished(&self, run: &RunId, ended: &ExecutionOutcome, applied: Option<ChangeOutcome>) {
        match (ended, applied) {
            (
                ExecutionOutcome::Finished(status, _),
                Some(ChangeOutcome::Applied | ChangeOutcome::Duplicate),
            ) => {
                tracing::info!(run.id = %run, "run {run} ended: {status}");
                if self.out.is_json() {
                    self.out.print_json(&serde_json::json!({"run_id": run, "status": status}));
                }
            }
            (ExecutionOutcome::Finished(status, _), _) => {
                tracing::warn!(
                    run.id = %run,
                    "run {run} belongs to another worker; its result ({status}) was discarded"
                );
            }
            (ExecutionOutcome::Interrupted, _) => {
                tracing::warn!(run.id = %run, "run {run} was interrupted; another worker will execute its successor");
            }
        }
    }
}

impl<T: Transport> CommandExecutor<T> {
    /// Adds who cancelled the run and why, if this worker may read it.
    async fn add_cancel(&self, run: &RunId, metadata: &mut serde_json::Map<String, Json>) {
        if let Ok(run) = self.transport.run(run).await {
            if let Some(by) = run.cancel_requested_by {
                metadata.insert("cancelled_by".to_owned(), by.into());
            }
            if let Some(reason) = run.cancel_reason {
                metadata.insert("reason".to_owned(), reason.into());
            }
        }
    }

    /// Builds the command: the run on standard input and in the environment, and no access to the database.
    fn spec(&self, claim: &Claim, contact: BootInstant) -> Spec {
        let mut env = vec![
            ("TIDEMILL_RUN_ID".to_owned(), claim.run_id.to_string()),
            ("TIDEMILL_PROJECT".to_owned(), claim.project_id.clone()),
            ("TIDEMILL_ENV".to_owned(), claim.env_id.name().to_owned()),
            ("TIDEMILL_ATTEMPT".to_owned(), claim.attempt.to_string()),
            ("TIDEMILL_EPOCH".to_owned(), claim.epoch.to_string()),
            ("TIDEMILL_RUN_KIND".to_owned(), claim.kind.clone()),
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
            env_remove: environment::secret_variables(),
            dir: None,
            stdin,
            contact,
            contact_max: self.contact_max,
            // A line must fit into an event. Invalid UTF-8 grows when it is replaced, and is split again later.
            line_bytes_max: limits::MESSAGE_BYTES_MAX,
        }
    }
}

/// One run with its command.
struct RunningCommand<'w, T> {
    executor: &'w CommandExecutor<T>,
    claim: Claim,
    log: RunLog,
    control: Control,
    /// Events that the log has not accepted yet. While the log is full, the command waits, but signals are handled.
    pending: VecDeque<NewEvent>,
    output: Output,
    ending: CommandEnding,
}

impl<T: Transport> RunningCommand<'_, T> {
    /// Follows the command until it ends.
    async fn follow(
        mut self,
        mut child: SupervisedCommand,
        mut signals: watch::Receiver<RunSignal<BootInstant>>,
    ) -> ExecutionOutcome {
        // Earlier than the time limit in the database, which counts from the first event.
        let timeout = self.claim.timeout_secs.and_then(|secs| u64::try_from(secs).ok());
        let times_out_at = timeout.map(|secs| BootInstant::now().after(Duration::from_secs(secs)));
        let log = self.log.clone();
        loop {
            tokio::select! {
                permit = log.reserve(), if !self.pending.is_empty() => {
                    if let Some(event) = self.pending.pop_front() {
                        permit.send(event);
                    }
                }
                report = child.next(), if self.pending.is_empty() => match report {
                    Ok(Some(Report::Started { pid })) => self.started(pid),
                    Ok(Some(Report::Output { stream, text, part })) => {
                        self.pending.extend(self.output.events(stream, &text, part));
                    }
                    Ok(Some(Report::Exited(end))) => return self.outcome(&end).await,
                    Ok(None) => return failed("the supervisor ended without a word"),
                    Err(error) => return failed(&format!("the supervisor was lost: {error}")),
                },
                changed = signals.changed() => {
                    let now = *signals.borrow_and_update();
                    if changed.is_ok() {
                        self.handle_signal(now).await;
                    }
                }
                at = wait_until(times_out_at), if !self.ending.is_timed_out() => self.time_out(at).await,
            }
        }
    }

    async fn handle_signal(&mut self, signal: RunSignal<BootInstant>) {
        self.control.contact(signal.contact);
        let now = BootInstant::now();
        let deadline = self.ending.add_signal(&signal, self.executor.grace, now);
        self.stop_by(deadline, now).await;
    }

    async fn time_out(&mut self, at: BootInstant) {
        let now = BootInstant::now();
        let deadline = self.ending.add(Reason::TimedOut(at), self.executor.grace, now);
        self.stop_by(deadline, now).await;
    }

    /// Stops the command. The supervisor kills it at the earliest deadline that it received.
    async fn stop_by(&self, deadline: Option<BootInstant>, now: BootInstant) {
        match deadline {
            Some(deadline) if deadline <= now => self.control.kill().await,
            Some(deadline) => self.control.stop(now.until(deadline)).await,
            None => {}
        }
    }

    fn started(&mut self, pid: i32) {
        let mut event = NewEvent::new(Level::Info, "Command started").keyed("started");
        event.payload = serde_json::json!({"worker": self.executor.worker, "pid": pid});
        self.pending.push_back(event);
    }

    /// Returns the outcome of the run after the end of the command.
    async fn outcome(mut self, end: &End) -> ExecutionOutcome {
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
                self.executor.add_cancel(&self.claim.run_id, &mut metadata).await;
                return ExecutionOutcome::Finished(FinalStatus::Cancelled, Json::Object(metadata));
            }
            Cause::TimedOut => {
                let limit = self.claim.timeout_secs.unwrap_or_default();
                metadata.insert("error".to_owned(), format!("the run took longer than {limit} s").into());
            }
            // A command that succeeded has a result, even if it was being stopped.
            Cause::Interrupted | Cause::Own if end.is_success() => {
                return ExecutionOutcome::Finished(FinalStatus::Success, Json::Object(metadata));
            }
            Cause::Interrupted => return ExecutionOutcome::Interrupted,
            Cause::Own => {
                metadata.insert("error".to_owned(), end.to_string().into());
            }
        }
        if matches!(end, End::LostContact) {
            return ExecutionOutcome::Interrupted;
        }
        if let Some(tail) = self.output.tail() {
            metadata.insert("stderr".to_owned(), tail.into());
        }
        ExecutionOutcome::Finished(FinalStatus::Failed, Json::Object(metadata))
    }
}

fn failed(error: &str) -> ExecutionOutcome {
    ExecutionOutcome::Finished(FinalStatus::Failed, serde_json::json!({"error": error}))
}

/// Waits until a time, or forever without one.
async fn wait_until(moment: Option<BootInstant>) -> BootInstant {
    let Some(moment) = moment else { return std::future::pending().await };
    tokio::time::sleep(BootInstant::now().until(moment)).await;
    moment
}
