//! The end of a command: what it left is looked at and kept, and what came of the task is written down.

use crate::artifacts::Halt;
use crate::carry::{Next, Task, until_unwanted};
use crate::executor::{Executor, Fault};
use crate::outputs;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tidemill_core::task::{Output, Stage, TaskResult};
use tidemill_supervisor::{End, Exit, Mask};
use tidemill_wire::agents::Work;

/// How long the server may take to hear of a stage that is soon followed by another.
const TELL: Duration = Duration::from_secs(2);
/// The exit code of a shell for a command that could not be started.
const NOT_STARTED: i32 = 127;

impl<E: Executor> Task<'_, E> {
    pub(crate) async fn finish(&mut self, work: &Work, exit: &Exit) -> io::Result<Next> {
        let (exit_code, message) = match judge(work, exit) {
            Ok(ended) => ended,
            Err(fault) => return Ok(self.fail(fault)),
        };
        if exit_code != 0 || message.is_some() {
            self.tell(Stage::Error).await;
            self.tell(Stage::Executed).await;
            let result = TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message };
            return Ok(self.conclude(result, Vec::new()));
        }
        let (agent, place) = (self.agent, self.place.clone());
        let collected = {
            let collecting = self.collect(work);
            tokio::pin!(collecting);
            // Where there is little to collect, the server need not hear of it.
            tokio::select! {
                collected = &mut collecting => Some(collected),
                () = tokio::time::sleep(Duration::from_millis(200)) => tokio::select! {
                    collected = &mut collecting => Some(collected),
                    () = until_unwanted(agent, &place, Stage::Finalizing) => None,
                },
            }
        };
        match collected {
            None => {
                self.note_over();
                Ok(Next::Again)
            }
            Some(None) => Ok(Next::Again),
            Some(Some(Err(fault))) => Ok(self.fail(fault)),
            Some(Some(Ok(found))) => {
                let outputs::Found { outputs, unmatched, hint } = found;
                Ok(self.conclude(TaskResult::Ended { exit_code, unmatched, hint, message }, outputs))
            }
        }
    }

    /// Finds, measures and keeps what the command left; nothing if something else is wanted meanwhile.
    async fn collect(&mut self, work: &Work) -> Option<Result<outputs::Found, Fault>> {
        let (agent, place) = (self.agent, self.place.clone());
        let job_id = self.order.job_id.clone();
        let mask = match self.mask() {
            Ok(mask) => mask,
            // Names of files may hold them.
            Err(problem) if !work.outputs.is_empty() => return Some(Err(Fault::passing(problem))),
            Err(_) => Mask::default(),
        };
        tokio::select! {
            found = collect(agent, &place, &job_id, work, mask) => Some(found),
            () = self.other_wish() => None,
        }
    }

    /// Tells the server of a stage, if it listens.
    async fn tell(&self, stage: Stage) {
        let _ = tokio::time::timeout(TELL, self.agent.door.stage(self.place.task_id(), stage)).await;
    }
}

async fn collect<E: Executor>(
    agent: &crate::run::Agent<E>,
    place: &crate::place::Place,
    job_id: &str,
    work: &Work,
    mask: Mask,
) -> Result<outputs::Found, Fault> {
    let halt = Halt::default();
    let flag = halt.flag();
    let (dir, kept) = (place.work(), agent.home.kept(&work.workspace, job_id));
    let (patterns, inputs) = (work.outputs.clone(), work.inputs.clone());
    let found = tokio::task::spawn_blocking(move || {
        let brought: BTreeMap<&str, &str> =
            inputs.iter().map(|input| (input.output.path.as_str(), input.output.sha256.as_str())).collect();
        let found = outputs::find(&dir, &patterns, &brought, &mask, &flag)?;
        if !patterns.is_empty() {
            outputs::keep(&dir, &found.outputs, &kept, &flag).map_err(|error| {
                Fault::passing(format!("what the command left could not be kept: {error}"))
            })?;
        }
        Ok(found)
    });
    let mut found = found.await.map_err(|error| Fault::passing(error.to_string()))??;
    if let Some(store) = &agent.store
        && found.unmatched.is_empty()
    {
        let mut addresses: BTreeMap<String, String> = BTreeMap::new();
        for output in &mut found.outputs {
            let url = match addresses.get(&output.path) {
                Some(url) => url.clone(),
                None => put(store, place, work, output).await?,
            };
            addresses.insert(output.path.clone(), url.clone());
            output.url = Some(url);
        }
    }
    Ok(found)
}

async fn put(
    store: &crate::artifacts::Store,
    place: &crate::place::Place,
    work: &Work,
    output: &Output,
) -> Result<String, Fault> {
    store.put(&place.work(), &work.workspace, place.task_id(), output).await
}

/// The exit code, and what to say of it; or why there is none.
fn judge(work: &Work, exit: &Exit) -> Result<(i32, Option<String>), Fault> {
    if exit.stopped && !exit.end.is_success() {
        return Err(Fault::passing("the command was stopped by its agent"));
    }
    match &exit.end {
        End::Code(code) if exit.timed_out => Ok((exit_code_of_timeout(*code), Some(out_of_time(work)))),
        End::Code(code) => Ok((*code, None)),
        End::Signal(number) if exit.timed_out => Ok((128 + number, Some(out_of_time(work)))),
        End::Signal(number) => Ok((128 + number, Some(why(work, *number, &exit.end)))),
        End::NotStarted { reason } => {
            let is_ours = ["the supervisor", "the launch step", "the parent-death"];
            if is_ours.iter().any(|beginning| reason.starts_with(beginning)) {
                return Err(Fault::passing(format!("the command was not started: {reason}")));
            }
            Ok((NOT_STARTED, Some(format!("the command was not started: {reason}"))))
        }
        End::LostContact => Err(Fault::passing("the command was killed: contact with the server was lost")),
    }
}

/// A command that was out of time did not succeed, whatever it says.
fn exit_code_of_timeout(code: i32) -> i32 {
    if code == 0 { 124 } else { code }
}

fn out_of_time(work: &Work) -> String {
    format!("the command ran longer than {} s", work.timeout_secs.unwrap_or_default())
}

fn why(work: &Work, number: i32, end: &End) -> String {
    const XCPU: i32 = 24;
    const XFSZ: i32 = 25;
    match (number, work.limits.cpu_secs, work.limits.output_bytes) {
        (XCPU, Some(secs), _) => format!("the command used more than {secs} s of processor time"),
        (XFSZ, _, Some(bytes)) => format!("the command wrote a file of more than {bytes} bytes"),
        (9, ..) => format!("the command was {end}, perhaps because memory ran out"),
        _ => format!("the command was {end}"),
    }
}
