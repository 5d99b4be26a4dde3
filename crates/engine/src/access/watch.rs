//! Secrets of those who stay, such as readers of live events: a token that is revoked or expires, and a session that
//! ends, end what they let in.
//!
//! However many stay, the database is asked in one query, once in a while, and only while somebody stays. What ends in
//! this process ends at once, and everywhere within that time. While the database does not answer, everybody stays.

use crate::Engine;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::limits::{BATCH_MAX, TOKEN_TRUST_SECS};
use tidemill_store::{Error, LoopError, LoopOptions, Next};
use tokio::sync::watch;
use uuid::Uuid;

/// Time between two looks: as long as a token is trusted elsewhere.
const LOOK: Duration = Duration::from_secs(TOKEN_TRUST_SECS as u64);

/// All that are watched in this process.
pub(super) struct Watch {
    engine: Engine,
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    running: bool,
    secrets: HashMap<String, Entry>,
}

/// One secret, whoever came with it.
struct Entry {
    token: Uuid,
    over: watch::Sender<bool>,
}

/// A secret that is watched, for as long as this is kept; cheap to clone.
#[derive(Clone)]
pub struct Watched(watch::Receiver<bool>);

impl Watched {
    /// Waits until the secret is worth nothing any more.
    pub async fn over(&mut self) {
        // Nobody who could say so is left only when the process ends; then nothing is let in either.
        let _ = self.0.wait_for(|over| *over).await;
    }
}

impl Watch {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, desk: Mutex::default() }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing in there can be half done.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one more that came with a secret.
    pub(super) fn join(self: &Arc<Self>, hash: &str, token: Uuid) -> Watched {
        let mut desk = self.desk();
        if !desk.running {
            desk.running = true;
            let watch = Arc::downgrade(self);
            let options = LoopOptions::new("access_watch").first_after(LOOK).backoff_max(LOOK);
            self.engine.store().monitor().spawn(options, move || look_again(watch.clone()));
        }
        let entry = desk.secrets.entry(hash.to_owned());
        let entry = entry.or_insert_with(|| Entry { token, over: watch::Sender::new(false) });
        Watched(entry.over.subscribe())
    }

    /// Ends what these let in: by their hash, and by their token.
    pub(super) fn end(&self, wrong: impl Fn(&str, Uuid) -> bool) {
        self.desk().secrets.retain(|hash, entry| {
            let ends = wrong(hash, entry.token);
            if ends {
                entry.over.send_replace(true);
            }
            !ends
        });
    }

    /// The hashes that somebody stays with; none when nobody does, and then the task is over.
    fn watched(&self) -> Vec<String> {
        let mut desk = self.desk();
        desk.secrets.retain(|_, entry| entry.over.receiver_count() > 0);
        desk.running = !desk.secrets.is_empty();
        desk.secrets.keys().cloned().collect()
    }

    async fn look(&self, hashes: &[String]) -> Result<(), Error> {
        for some in hashes.chunks(BATCH_MAX) {
            let good = self.engine.store.good_secrets(some.to_vec(), self.engine.clock.now()).await?;
            let good: HashSet<&str> = good.iter().map(String::as_str).collect();
            let over: HashSet<&str> =
                some.iter().map(String::as_str).filter(|hash| !good.contains(hash)).collect();
            if !over.is_empty() {
                self.end(|hash, _| over.contains(hash));
            }
        }
        Ok(())
    }
}

/// Looks once, for as long as somebody stays.
async fn look_again(watch: Weak<Watch>) -> Result<Next, LoopError> {
    let Some(watch) = watch.upgrade() else { return Ok(Next::End) };
    let hashes = watch.watched();
    if hashes.is_empty() {
        return Ok(Next::End);
    }
    watch.look(&hashes).await?;
    Ok(Next::After(LOOK))
}
