//! Retention: removes retained outputs that no run needs.
//!
//! The server knows which outputs are needed; the agent knows their sizes and its retention policy. The agent removes
//! outputs only after the server has agreed, which then assigns no job that needs them to this agent. A server without
//! this endpoint has not agreed.

use crate::agent_dir::RetainedOutputs;
use crate::backoff::Backoff;
use crate::executor::Executor;
use crate::run::Agent;
use crate::server_client::RequestError;
use crate::settings::RetentionPolicy;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_core::limits::RETENTION_JOBS_MAX;
use tracing::{info, warn};

/// Time that a task waits for space on a full disk, and the interval of its checks.
const SPACE_TIMEOUT: Duration = Duration::from_secs(10);
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Retained outputs that no active run needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnusedOutputs {
    outputs: RetainedOutputs,
    /// Time since the end of the last run that used them; `None` if the server has no such run.
    idle: Option<Duration>,
    bytes: u64,
}

/// Removes unused outputs periodically, and on request when the disk is full.
pub(crate) async fn enforce_retention<E: Executor>(agent: Arc<Agent<E>>) {
    let mut backoff = Backoff::up_to(agent.settings.retention.every);
    // On a full disk all unused outputs are removed: they can be produced again, and a full disk stops every task.
    let remove_all = RetentionPolicy { time: None, bytes: Some(0), every: agent.settings.retention.every };
    let mut is_full = false;
    loop {
        let removed =
            agent.remove_unused(if is_full { &remove_all } else { &agent.settings.retention }).await;
        if is_full {
            agent.space_freed.fetch_add(1, Ordering::Relaxed);
        }
        let is_refused = match &removed {
            Err(RetentionError::Server(error)) => !matches!(error, RequestError::NotFound(_)),
            Ok(_) | Err(RetentionError::Disk(_)) => false,
        };
        match removed {
            Ok(0) => {}
            Ok(removed) => info!("removed the unused outputs of {removed} jobs"),
            Err(RetentionError::Disk(error)) => warn!("could not remove unused outputs: {error}"),
            Err(RetentionError::Server(error)) => {
                if agent.end_if_superseded(&error) {
                    return;
                }
            }
        }
        // After NotFound the server is older or does not know the agent. The heartbeat handles the latter.
        let pause = if is_refused { backoff.next() } else { agent.settings.retention.every };
        if !is_refused {
            backoff.reset();
        }
        is_full = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = agent.space_wanted.notified() => true,
        };
    }
}

/// Reason why outputs were not removed.
enum RetentionError {
    Disk(io::Error),
    Server(RequestError),
}

impl<E: Executor> Agent<E> {
    /// Requests disk space; returns after a removal pass that began later than this call.
    pub(crate) async fn free_space(&self) {
        let started = tokio::time::Instant::now();
        let before = self.space_freed.load(Ordering::Relaxed);
        // One pass may already be running.
        while self.space_freed.load(Ordering::Relaxed) < before + 2 && started.elapsed() < SPACE_TIMEOUT {
            self.space_wanted.notify_one();
            tokio::time::sleep(SPACE_CHECK_INTERVAL).await;
        }
    }

    /// Removes unused outputs according to the policy; returns for how many jobs.
    async fn remove_unused(&self, policy: &RetentionPolicy) -> Result<usize, RetentionError> {
        let retained = self.dir.retained().map_err(RetentionError::Disk)?;
        let measured = policy.bytes.is_some();
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for one in retained.iter().filter(|_| measured) {
            let dir = one.dir.clone();
            let size = tokio::task::spawn_blocking(move || size(&dir)).await.map_err(io::Error::other);
            bytes.insert(one.job_id.clone(), size.flatten().map_err(RetentionError::Disk)?);
        }
        let mut unused = Vec::new();
        for some in retained.chunks(RETENTION_JOBS_MAX) {
            let jobs = some.iter().map(|one| one.job_id.clone()).collect();
            let response =
                self.server.check_retention(jobs, Vec::new()).await.map_err(RetentionError::Server)?;
            for reported in response.unused {
                // Ignores jobs that the request did not name.
                if let Some(outputs) = some.iter().find(|one| one.job_id == reported.job_id) {
                    let bytes = bytes.get(&reported.job_id).copied().unwrap_or(0);
                    unused.push(UnusedOutputs {
                        outputs: outputs.clone(),
                        idle: reported.idle_secs.map(Duration::from_secs),
                        bytes,
                    });
                }
            }
        }
        let removals = select_removals(unused, bytes.values().sum(), policy);
        let mut removed = 0;
        for some in removals.chunks(RETENTION_JOBS_MAX) {
            let jobs = some.iter().map(|one| one.job_id.clone()).collect();
            let gone =
                self.server.check_retention(Vec::new(), jobs).await.map_err(RetentionError::Server)?.gone;
            for one in some.iter().filter(|one| gone.contains(&one.job_id)) {
                self.dir.remove_retained(one).map_err(RetentionError::Disk)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Selects the unused outputs to remove.
///
/// These are outputs without a known run, outputs that are idle for longer than the policy allows, and the longest idle
/// ones until the total size is within the limit.
fn select_removals(
    mut unused: Vec<UnusedOutputs>,
    total: u64,
    policy: &RetentionPolicy,
) -> Vec<RetainedOutputs> {
    unused.sort_by(|one, other| {
        // Outputs without a known run come first.
        let age = |it: &UnusedOutputs| it.idle.unwrap_or(Duration::MAX);
        age(other).cmp(&age(one)).then_with(|| one.outputs.job_id.cmp(&other.outputs.job_id))
    });
    let mut total = total;
    let mut removals = Vec::new();
    for it in unused {
        let is_old = it.idle.is_none_or(|idle| policy.time.is_some_and(|time| idle >= time));
        if is_old || policy.bytes.is_some_and(|bytes| total > bytes) {
            total = total.saturating_sub(it.bytes);
            removals.push(it.outputs);
        }
    }
    removals
}

/// Total size of all files below a directory. Symbolic links are not followed.
fn size(dir: &std::path::Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                pending.push(entry.path());
            } else {
                bytes += about.len();
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(job: &str, idle_secs: Option<u64>, bytes: u64) -> UnusedOutputs {
        let outputs = RetainedOutputs { job_id: job.to_owned(), dir: job.into() };
        UnusedOutputs { outputs, idle: idle_secs.map(Duration::from_secs), bytes }
    }

    fn removed(total: u64, time: Option<u64>, bytes: Option<u64>) -> Vec<String> {
        let all = vec![unused("new", Some(10), 5), unused("lost", None, 5), unused("old", Some(90), 5)];
        let policy =
            RetentionPolicy { time: time.map(Duration::from_secs), bytes, every: Duration::from_secs(1) };
        select_removals(all, total, &policy).into_iter().map(|outputs| outputs.job_id).collect()
    }

    #[test]
    fn outputs_are_removed_by_age_and_total_size() {
        assert_eq!(removed(115, None, None), ["lost"]);
        assert_eq!(removed(115, Some(90), None), ["lost", "old"]);
        assert_eq!(removed(115, Some(0), None), ["lost", "old", "new"]);
        // Needed outputs, 100 of the 115 bytes here, count towards the limit and are not removed.
        assert_eq!(removed(115, None, Some(110)), ["lost"]);
        assert_eq!(removed(115, None, Some(109)), ["lost", "old"]);
        assert_eq!(removed(115, None, Some(1)), ["lost", "old", "new"]);
    }

    #[test]
    fn directory_size_is_the_sum_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c"), [0; 100]).unwrap();
        std::fs::write(dir.path().join("d"), [0; 11]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/root")).unwrap();
        assert!((111..200).contains(&size(dir.path()).unwrap()));
    }
}
