//! Brings what needed jobs left into a task's directory: from this agent's own workspace, or from the store.

use crate::artifacts::{Halt, Store, copy_file};
use crate::beneath::{Missing, Root, objection};
use crate::executor::Fault;
use crate::home::{Home, make_dir};
use crate::order::is_id;
use crate::place::{Place, remove_all};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use tidemill_wire::agents::{Input, Work};

/// Makes the directory anew, with everything in it that the command needs.
///
/// Nothing was started yet, so whatever an earlier try left can go.
pub(crate) async fn bring(
    home: &Home,
    store: Option<&Store>,
    place: &Place,
    work: &Work,
) -> Result<(), Fault> {
    let made = [place.work(), place.tmp()].iter().try_for_each(|dir| {
        remove_all(dir)?;
        make_dir(dir)
    });
    let failed = |error: io::Error| Fault::passing(format!("the directory could not be made: {error}"));
    made.map_err(failed)?;
    let root = Root::open(&place.work()).map_err(failed)?;
    let mut there: BTreeMap<&str, &str> = BTreeMap::new();
    for input in &work.inputs {
        let output = &input.output;
        // The same file under two names is brought once; two files of the same name cannot both be there.
        match there.insert(&output.path, &output.sha256) {
            None => bring_one(home, store, &root, work, input).await?,
            Some(sha256) if sha256 == output.sha256 => {}
            Some(_) => {
                return Err(Fault::fatal(format!("two needed jobs left a different `{}`", output.path)));
            }
        }
    }
    if let Some(workdir) = &work.workdir {
        root.dir(workdir, Missing::Make).map_err(|error| {
            Fault::fatal(format!("the directory `{workdir}` cannot be made in the job's own: {error}"))
        })?;
    }
    Ok(())
}

async fn bring_one(
    home: &Home,
    store: Option<&Store>,
    root: &Root,
    work: &Work,
    input: &Input,
) -> Result<(), Fault> {
    let (job, path) = (&input.job, &input.output.path);
    if let Some(objection) = objection(path) {
        return Err(Fault::fatal(format!("the path {path:?}, which `{job}` left, {objection}")));
    }
    let to = root.create(path).map_err(|error| {
        Fault::fatal(format!("`{path}`, which `{job}` left, cannot be put into the directory: {error}"))
    })?;
    let (sha256, bytes) = match local(home, work, input) {
        Some(from) => {
            let halt = Halt::default();
            let flag = halt.flag();
            let copied = tokio::task::spawn_blocking(move || copy_file(from, &to, &flag));
            let copied = copied.await.map_err(io::Error::other).flatten();
            copied.map_err(|error| Fault::passing(format!("`{path}` could not be copied: {error}")))?
        }
        None => match (&input.output.url, store) {
            (Some(url), Some(store)) => store.get(url, to).await?,
            (Some(_), None) => {
                let why = "is in a store, and this agent has none: start it with --store";
                // Another agent may have one, or this one after it was started again.
                return Err(Fault::passing(format!("`{path}`, which `{job}` left, {why}")));
            }
            (None, _) if input.agent_id == Some(home.agent_id()) => {
                let why = "is gone from the disk of this agent, which alone had it: have that job run again";
                return Err(Fault::fatal(format!("`{path}`, which `{job}` left, {why}")));
            }
            (None, _) => {
                let why =
                    "is on another agent: start agents with --store, so that they share what jobs leave";
                return Err(Fault::fatal(format!("`{path}`, which `{job}` left, {why}")));
            }
        },
    };
    if sha256 != input.output.sha256 || i64::try_from(bytes) != Ok(input.output.size_bytes) {
        return Err(Fault::fatal(format!("`{path}` is not what `{job}` left: it was changed since")));
    }
    Ok(())
}

/// The file in this agent's own workspace, where this agent made it and still has it.
fn local(home: &Home, work: &Work, input: &Input) -> Option<File> {
    let is_ours = input.agent_id == Some(home.agent_id()) && is_id(&input.job_id);
    let kept = is_ours.then(|| home.kept(&work.workspace, &input.job_id))?;
    Root::open(&kept).and_then(|root| root.read(&input.output.path)).ok()
}
