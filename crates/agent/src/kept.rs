//! What jobs left and this agent keeps for others: removed when nobody can want it any more.
//!
//! The server knows who needs what; the agent knows how much there is, and was told how much it may keep. Before
//! anything is removed the server has agreed, and sends nobody here for it any more. A server that does not know the
//! question has not agreed.

use crate::door::Trouble;
use crate::executor::Executor;
use crate::home::Kept;
use crate::run::Agent;
use crate::settings::Keep;
use crate::wait::Backoff;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_core::limits::KEPT_MAX;
use tracing::{info, warn};

/// How long a task waits for space on a full disk, and how often it looks.
const ROOM_MAX: Duration = Duration::from_secs(10);
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Something that no run that goes on needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unused {
    kept: Kept,
    /// How long ago the last run ended that had to do with it; none, where no such run is on record.
    idle: Option<Duration>,
    bytes: u64,
}

/// Looks now and then, for ever.
pub(crate) async fn keep<E: Executor>(agent: Arc<Agent<E>>) {
    let mut backoff = Backoff::up_to(agent.settings.keep.every);
    // On a full disk nothing is kept that no run needs: what is gone is made again, and a full disk stops everybody.
    let nothing = Keep { time: None, bytes: Some(0), every: agent.settings.keep.every };
    let mut is_full = false;
    loop {
        let removed = agent.remove_unused(if is_full { &nothing } else { &agent.settings.keep }).await;
        if is_full {
            agent.space_freed.fetch_add(1, Ordering::Relaxed);
        }
        let is_refused =
            matches!(&removed, Err(Hindrance::Server(trouble)) if !matches!(trouble, Trouble::Unknown(_)));
        match removed {
            Ok(0) => {}
            Ok(removed) => info!("removed what {removed} jobs left: nobody needs it any more"),
            Err(Hindrance::Disk(error)) => warn!("what jobs left could not be removed: {error}"),
            Err(Hindrance::Server(trouble)) => {
                if agent.heed(&trouble) {
                    return;
                }
            }
        }
        // A server that does not know the question is older, or forgot us, which others find out.
        let pause = if is_refused { backoff.next() } else { agent.settings.keep.every };
        if !is_refused {
            backoff.reset();
        }
        is_full = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = agent.space_wanted.notified() => true,
        };
    }
}

/// Why nothing was removed.
enum Hindrance {
    Disk(io::Error),
    Server(Trouble),
}

impl<E: Executor> Agent<E> {
    /// Frees space as far as that is possible: comes back after a pass that began later than this call.
    pub(crate) async fn make_room(&self) {
        let begun = tokio::time::Instant::now();
        let before = self.space_freed.load(Ordering::Relaxed);
        // One pass may be under way already.
        while self.space_freed.load(Ordering::Relaxed) < before + 2 && begun.elapsed() < ROOM_MAX {
            self.space_wanted.notify_one();
            tokio::time::sleep(ROOM_PAUSE).await;
        }
    }

    /// Removes what nobody needs and what is more than may be kept; of how many jobs.
    async fn remove_unused(&self, keep: &Keep) -> Result<usize, Hindrance> {
        let kept = self.home.all_kept().map_err(Hindrance::Disk)?;
        let measured = keep.bytes.is_some();
        let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
        for one in kept.iter().filter(|_| measured) {
            let dir = one.dir.clone();
            let size = tokio::task::spawn_blocking(move || size(&dir)).await.map_err(io::Error::other);
            bytes.insert(one.job_id.clone(), size.flatten().map_err(Hindrance::Disk)?);
        }
        let mut unused = Vec::new();
        for some in kept.chunks(KEPT_MAX) {
            let jobs = some.iter().map(|one| one.job_id.clone()).collect();
            let answer = self.door.kept(jobs, Vec::new()).await.map_err(Hindrance::Server)?;
            for told in answer.unused {
                // Only what was asked about: an answer names nothing else of ours.
                if let Some(kept) = some.iter().find(|one| one.job_id == told.job_id) {
                    let bytes = bytes.get(&told.job_id).copied().unwrap_or(0);
                    unused.push(Unused {
                        kept: kept.clone(),
                        idle: told.idle_secs.map(Duration::from_secs),
                        bytes,
                    });
                }
            }
        }
        let goes = choose(unused, bytes.values().sum(), keep);
        let mut removed = 0;
        for some in goes.chunks(KEPT_MAX) {
            let jobs = some.iter().map(|one| one.job_id.clone()).collect();
            let gone = self.door.kept(Vec::new(), jobs).await.map_err(Hindrance::Server)?.gone;
            for one in some.iter().filter(|one| gone.contains(&one.job_id)) {
                self.home.remove_kept(one).map_err(Hindrance::Disk)?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// What goes of what nobody needs: what no run is on record of, what was not needed for too long, and of the rest what
/// was not needed for longest, until all that is kept is not more than may be.
fn choose(mut unused: Vec<Unused>, total: u64, keep: &Keep) -> Vec<Kept> {
    unused.sort_by(|one, other| {
        // Nothing on record comes before everything else.
        let age = |it: &Unused| it.idle.unwrap_or(Duration::MAX);
        age(other).cmp(&age(one)).then_with(|| one.kept.job_id.cmp(&other.kept.job_id))
    });
    let mut left = total;
    let mut goes = Vec::new();
    for it in unused {
        let is_old = it.idle.is_none_or(|idle| keep.time.is_some_and(|time| idle >= time));
        if is_old || keep.bytes.is_some_and(|bytes| left > bytes) {
            left = left.saturating_sub(it.bytes);
            goes.push(it.kept);
        }
    }
    goes
}

/// How large all files of a directory are. Links are not followed.
fn size(dir: &std::path::Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                waiting.push(entry.path());
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

    fn unused(job: &str, idle_secs: Option<u64>, bytes: u64) -> Unused {
        let kept = Kept { job_id: job.to_owned(), dir: job.into() };
        Unused { kept, idle: idle_secs.map(Duration::from_secs), bytes }
    }

    fn goes(total: u64, time: Option<u64>, bytes: Option<u64>) -> Vec<String> {
        let there = vec![unused("new", Some(10), 5), unused("lost", None, 5), unused("old", Some(90), 5)];
        let keep = Keep { time: time.map(Duration::from_secs), bytes, every: Duration::from_secs(1) };
        choose(there, total, &keep).into_iter().map(|kept| kept.job_id).collect()
    }

    #[test]
    fn what_is_not_on_record_goes_and_the_rest_by_its_bounds() {
        assert_eq!(goes(115, None, None), ["lost"]);
        assert_eq!(goes(115, Some(90), None), ["lost", "old"]);
        assert_eq!(goes(115, Some(0), None), ["lost", "old", "new"]);
        // What is needed counts, and stays: 100 of the 115 are.
        assert_eq!(goes(115, None, Some(110)), ["lost"]);
        assert_eq!(goes(115, None, Some(109)), ["lost", "old"]);
        assert_eq!(goes(115, None, Some(1)), ["lost", "old", "new"]);
    }

    #[test]
    fn a_directory_is_as_large_as_its_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c"), [0; 100]).unwrap();
        std::fs::write(dir.path().join("d"), [0; 11]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/root")).unwrap();
        assert!((111..200).contains(&size(dir.path()).unwrap()));
    }
}
