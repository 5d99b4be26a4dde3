//! Watches the secrets of long-lived connections, such as readers of live events. When the token is revoked or expires,
//! or the session ends, the connection is closed.
//!
//! One periodic query checks all watched secrets, and only while there are any. Revocations in this process take effect
//! at once, all others within one interval. While the database does not answer, connections stay open.

use crate::Engine;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::limits::{BATCH_MAX, TOKEN_CACHE_SECS};
use tidemill_store::{Error, LoopError, LoopOptions, Next};
use tokio::sync::watch;
use uuid::Uuid;

/// Time between two checks: as long as other processes trust a cached token.
const CHECK_EVERY: Duration = Duration::from_secs(TOKEN_CACHE_SECS as u64);

/// All watched secrets of this process.
pub(super) struct SecretWatcher {
    engine: Engine,
    watched: Mutex<WatchedSecrets>,
}

#[derive(Default)]
struct WatchedSecrets {
    running: bool,
    secrets: HashMap<String, Entry>,
}

/// One secret, shared by all connections that use it.
struct Entry {
    token: Uuid,
    over: watch::Sender<bool>,
}

/// A watched secret. Cloning is cheap; the watch ends when all clones are dropped.
#[derive(Clone)]
pub struct SecretWatch(watch::Receiver<bool>);

impl SecretWatch {
    /// Waits until the secret is no longer valid.
    pub async fn over(&mut self) {
        // The sender is dropped only when the process ends.
        let _ = self.0.wait_for(|over| *over).await;
    }
}

impl SecretWatcher {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, watched: Mutex::default() }
    }

    fn watched(&self) -> MutexGuard<'_, WatchedSecrets> {
        // The map is valid after every statement, so a poisoned lock can be used.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a secret for one more connection.
    pub(super) fn join(self: &Arc<Self>, hash: &str, token: Uuid) -> SecretWatch {
        let mut watched = self.watched();
        if !watched.running {
            watched.running = true;
            let watch = Arc::downgrade(self);
            let options = LoopOptions::new("access_watch").first_after(CHECK_EVERY).backoff_max(CHECK_EVERY);
            self.engine.store().monitor().spawn(options, move || check_once(watch.clone()));
        }
        let entry = watched.secrets.entry(hash.to_owned());
        let entry = entry.or_insert_with(|| Entry { token, over: watch::Sender::new(false) });
        SecretWatch(entry.over.subscribe())
    }

    /// Ends the watches for which `wrong(hash, token)` is true.
    pub(super) fn end(&self, wrong: impl Fn(&str, Uuid) -> bool) {
        self.watched().secrets.retain(|hash, entry| {
            let ends = wrong(hash, entry.token);
            if ends {
                entry.over.send_replace(true);
            }
            !ends
        });
    }

    /// Returns the hashes in use. If there are none, the task ends.
    fn hashes_in_use(&self) -> Vec<String> {
        let mut watched = self.watched();
        watched.secrets.retain(|_, entry| entry.over.receiver_count() > 0);
        watched.running = !watched.secrets.is_empty();
        watched.secrets.keys().cloned().collect()
    }

    async fn check(&self, hashes: &[String]) -> Result<(), Error> {
        for some in hashes.chunks(BATCH_MAX) {
            let good = self.engine.store.valid_secrets(some.to_vec(), self.engine.clock.now()).await?;
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

/// Checks all secrets once. Ends the loop when none is in use.
async fn check_once(watch: Weak<SecretWatcher>) -> Result<Next, LoopError> {
    let Some(watch) = watch.upgrade() else { return Ok(Next::End) };
    let hashes = watch.hashes_in_use();
    if hashes.is_empty() {
        return Ok(Next::End);
    }
    watch.check(&hashes).await?;
    Ok(Next::After(CHECK_EVERY))
}
