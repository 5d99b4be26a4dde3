//! The end of a command: collects and retains its outputs, and concludes the task.

use crate::artifacts::CancelOnDrop;
use crate::executor::{Executor, TaskError};
use crate::outputs;
use crate::task::{NextStep, Task, until_unassigned};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tidemill_core::task::{Output, Stage, TaskResult};
use tidemill_supervisor::{End, Exit, Mask};
use tidemill_wire::agents::Work;

/// Time limit for the report of a stage that another one soon follows.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Exit code that a shell uses for a command that could not be started.
const NOT_STARTED: i32 = 127;

impl<E: Executor> Task<'_, E> {
    pub(crate) async fn finish(&mut self, work: &Work, exit: &Exit) -> io::Result<NextStep> {
        let (exit_code, message) = match exit_code(work, exit) {
            Ok(outcome) => outcome,
            Err(fault) => return Ok(self.fail(fault)),
        };
        if exit_code != 0 || message.is_some() {
            self.try_report(Stage::Error).await;
            self.try_report(Stage::Executed).await;
            let result = TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message };
            return Ok(self.conclude(result, Vec::new()));
        }
        let (agent, task_dir) = (self.agent, self.dir.clone());
        let collected = {
            let collecting = self.collect(work);
            tokio::pin!(collecting);
            // A short collection is not worth a request.
            tokio::select! {
                collected = &mut collecting => Some(collected),
                () = tokio::time::sleep(Duration::from_millis(200)) => tokio::select! {
                    collected = &mut collecting => Some(collected),
                    () = until_unassigned(agent, &task_dir, Stage::Finalizing) => None,
                },
            }
        };
        match collected {
            None => {
                self.mark_over();
                Ok(NextStep::Again)
            }
            Some(None) => Ok(NextStep::Again),
            Some(Some(Err(fault))) => Ok(self.fail(fault)),
            Some(Some(Ok(found))) => {
                let outputs::CollectedOutputs { outputs, unmatched, hint } = found;
                Ok(self.conclude(TaskResult::Ended { exit_code, unmatched, hint, message }, outputs))
            }
        }
    }

    /// Collects and retains the outputs; returns `None` if a stop is requested meanwhile.
    async fn collect(&mut self, work: &Work) -> Option<Result<outputs::CollectedOutputs, TaskError>> {
        let (agent, task_dir) = (self.agent, self.dir.clone());
        let job_id = self.order.job_id.clone();
        let mask = match self.mask() {
            Ok(mask) => mask,
            // File names may contain secrets.
            Err(problem) if !work.outputs.is_empty() => return Some(Err(TaskError::transient(problem))),
            Err(_) => Mask::default(),
        };
        tokio::select! {
            found = collect(agent, &task_dir, &job_id, work, mask) => Some(found),
            () = self.stop_changed() => None,
        }
    }

    /// Reports a stage; gives up after [`REPORT_TIMEOUT`].
    async fn try_report(&self, stage: Stage) {
        let _ =
            tokio::time::timeout(REPORT_TIMEOUT, self.agent.server.stage(self.dir.task_id(), stage)).await;
    }
}

async fn collect<E: Executor>(
    agent: &crate::run::Agent<E>,
    task_dir: &crate::task_dir::TaskDir,
    job_id: &str,
    work: &Work,
    mask: Mask,
) -> Result<outputs::CollectedOutputs, TaskError> {
    let guard = CancelOnDrop::default();
    let flag = guard.flag();
    let (dir, retained) = (task_dir.work(), agent.dir.retained_dir(&work.workspace, job_id));
    let (patterns, inputs) = (work.outputs.clone(), work.inputs.clone());
    let found = tokio::task::spawn_blocking(move || {
        let inputs: BTreeMap<&str, &str> =
            inputs.iter().map(|input| (input.output.path.as_str(), input.output.sha256.as_str())).collect();
        let found = outputs::collect(&dir, &patterns, &inputs, &mask, &flag)?;
        if !patterns.is_empty() {
            outputs::retain(&dir, &found.outputs, &retained, &flag).map_err(|error| {
                TaskError::transient(format!("could not retain the outputs of the command: {error}"))
            })?;
        }
        Ok(found)
    });
    let mut found = found.await.map_err(|error| TaskError::transient(error.to_string()))??;
    if let Some(store) = &agent.store
        && found.unmatched.is_empty()
    {
        let mut urls: BTreeMap<String, String> = BTreeMap::new();
        for output in &mut found.outputs {
            let url = match urls.get(&output.path) {
                Some(url) => url.clone(),
                None => upload(store, task_dir, work, output).await?,
            };
            urls.insert(output.path.clone(), url.clone());
            output.url = Some(url);
        }
    }
    Ok(found)
}

async fn upload(
    store: &crate::artifacts::Store,
    task_dir: &crate::task_dir::TaskDir,
    work: &Work,
    output: &Output,
) -> Result<String, TaskError> {
    store.put(&task_dir.work(), &work.workspace, task_dir.task_id(), output).await
}

/// Returns the exit code with an optional message, or an error if the command has no exit code.
fn exit_code(work: &Work, exit: &Exit) -> Result<(i32, Option<String>), TaskError> {
    if exit.stopped && !exit.end.is_success() {
        return Err(TaskError::transient("the agent stopped the command"));
    }
    match &exit.end {
        End::Code(code) if exit.timed_out => Ok((exit_code_of_timeout(*code), Some(timeout_message(work)))),
        End::Code(code) => Ok((*code, None)),
        End::Signal(number) if exit.timed_out => Ok((128 + number, Some(timeout_message(work)))),
        End::Signal(number) => Ok((128 + number, Some(signal_message(work, *number, &exit.end)))),
        End::NotStarted { reason } => {
            // These are failures of the supervisor and not of the command, so a retry may succeed.
            let internal = ["the supervisor", "the launch step"];
            if internal.iter().any(|prefix| reason.starts_with(prefix)) {
                return Err(TaskError::transient(format!("the command was not started: {reason}")));
            }
            Ok((NOT_STARTED, Some(format!("the command was not started: {reason}"))))
        }
        End::LostContact => {
            Err(TaskError::transient("the command was killed because contact with the server was lost"))
        }
    }
}

/// Exit code of a command that timed out: never 0, because it did not succeed.
fn exit_code_of_timeout(code: i32) -> i32 {
    if code == 0 { 124 } else { code }
}

fn timeout_message(work: &Work) -> String {
    format!("the command ran longer than {} s", work.timeout_secs.unwrap_or_default())
}

fn signal_message(work: &Work, number: i32, end: &End) -> String {
    const XCPU: i32 = 24;
    const XFSZ: i32 = 25;
    match (number, work.limits.cpu_secs, work.limits.output_bytes) {
        (XCPU, Some(secs), _) => format!("the command used more than {secs} s of processor time"),
        (XFSZ, _, Some(bytes)) => format!("the command wrote a file of more than {bytes} bytes"),
        (9, ..) => format!("the command was {end}, perhaps because memory ran out"),
        _ => format!("the command was {end}"),
    }
}
