//! Copies the outputs of needed jobs into a task directory, from this agent's workspace or from the store.

use crate::agent_dir::{AgentDir, make_dir};
use crate::artifacts::{CancelOnDrop, Store, copy_file};
use crate::confined_dir::{ConfinedDir, MissingDirs, path_error};
use crate::executor::TaskError;
use crate::order::is_id;
use crate::task_dir::{TaskDir, remove_all};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use tidemill_wire::agents::{Input, Work};

/// Creates the working directory with all inputs of the command.
///
/// Removes files of an earlier attempt first, because no command was started in it yet.
pub(crate) async fn fetch(
    agent_dir: &AgentDir,
    store: Option<&Store>,
    task_dir: &TaskDir,
    work: &Work,
) -> Result<(), TaskError> {
    let created = [task_dir.work(), task_dir.tmp()].iter().try_for_each(|dir| {
        remove_all(dir)?;
        make_dir(dir)
    });
    let failed = |error: io::Error| {
        TaskError::transient(format!("could not create the directory of the task: {error}"))
    };
    created.map_err(failed)?;
    let root = ConfinedDir::open(&task_dir.work()).map_err(failed)?;
    let mut fetched: BTreeMap<&str, &str> = BTreeMap::new();
    for input in &work.inputs {
        let output = &input.output;
        // The same file of two outputs is copied once. Two different files with the same path are a conflict.
        match fetched.insert(&output.path, &output.sha256) {
            None => fetch_one(agent_dir, store, &root, work, input).await?,
            Some(sha256) if sha256 == output.sha256 => {}
            Some(_) => {
                return Err(TaskError::fatal(format!(
                    "two needed jobs have different outputs with the path `{}`",
                    output.path
                )));
            }
        }
    }
    if let Some(workdir) = &work.workdir {
        root.dir(workdir, MissingDirs::Create).map_err(|error| {
            TaskError::fatal(format!("could not create the workdir `{workdir}`: {error}"))
        })?;
    }
    Ok(())
}

async fn fetch_one(
    agent_dir: &AgentDir,
    store: Option<&Store>,
    root: &ConfinedDir,
    work: &Work,
    input: &Input,
) -> Result<(), TaskError> {
    let (job, path) = (&input.job, &input.output.path);
    if let Some(reason) = path_error(path) {
        return Err(TaskError::fatal(format!("the output path {path:?} of job `{job}` {reason}")));
    }
    let to = root.create(path).map_err(|error| {
        TaskError::fatal(format!("could not create the input `{path}` of job `{job}`: {error}"))
    })?;
    let (sha256, bytes) = match local(agent_dir, work, input) {
        Some(from) => {
            let guard = CancelOnDrop::default();
            let flag = guard.flag();
            let copied = tokio::task::spawn_blocking(move || copy_file(from, &to, &flag));
            let copied = copied.await.map_err(io::Error::other).flatten();
            copied.map_err(|error| {
                TaskError::transient(format!("could not copy the input `{path}`: {error}"))
            })?
        }
        None => match (&input.output.url, store) {
            (Some(url), Some(store)) => store.get(url, to).await?,
            (Some(_), None) => {
                let why = "is in a store, but this agent has none: start it with --store";
                // Another agent may have a store, or this one after a restart.
                return Err(TaskError::transient(format!("output `{path}` of job `{job}` {why}")));
            }
            (None, _) if input.agent_id == Some(agent_dir.agent_id()) => {
                let why = "was only on the disk of this agent, and was removed: run that job again";
                return Err(TaskError::fatal(format!("output `{path}` of job `{job}` {why}")));
            }
            (None, _) => {
                let why = "is on another agent: start all agents with --store to share outputs";
                return Err(TaskError::fatal(format!("output `{path}` of job `{job}` {why}")));
            }
        },
    };
    if sha256 != input.output.sha256 || i64::try_from(bytes) != Ok(input.output.size_bytes) {
        return Err(TaskError::fatal(format!(
            "output `{path}` of job `{job}` was changed after that job: SHA-256 or size differ"
        )));
    }
    Ok(())
}

/// Opens the retained file in this agent's workspace, if this agent ran the job and still has the file.
fn local(agent_dir: &AgentDir, work: &Work, input: &Input) -> Option<File> {
    let is_ours = input.agent_id == Some(agent_dir.agent_id()) && is_id(&input.job_id);
    let dir = is_ours.then(|| agent_dir.retained_dir(&work.workspace, &input.job_id))?;
    ConfinedDir::open(&dir).and_then(|root| root.read(&input.output.path)).ok()
}
