//! Shared state of all routes.

use crate::access::{Access, Throttle};
use crate::claim_waiters::ClaimWaiters;
use crate::live::Hub;
use crate::metrics::ScrapeCache;
use std::sync::Arc;
use tidemill_engine::Engine;
use tidemill_engine::access::CredentialCache;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::Syncs;
use tokio::sync::watch;

/// Shared state of all routes. Cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    syncs: Syncs,
    graphs: Graphs,
    access: Access,
    keyring: CredentialCache,
    throttle: Throttle,
    claim_waiters: ClaimWaiters,
    scrape: ScrapeCache,
    live: Hub,
    closing: watch::Sender<bool>,
}

impl App {
    /// Creates the state for these use cases and this authentication mode.
    pub fn new(syncs: Syncs, access: Access) -> Self {
        let closing = watch::Sender::new(false);
        let claim_waiters = ClaimWaiters::new(syncs.engine().store().clone(), closing.subscribe());
        let live = Hub::new(syncs.engine().store().clone());
        let keyring = CredentialCache::new(syncs.engine().clone());
        let graphs = Graphs::new(syncs.engine().clone(), GraphSettings::default());
        let (throttle, scrape) = (Throttle::default(), ScrapeCache::default());
        Self {
            inner: Arc::new(Inner {
                syncs,
                graphs,
                access,
                keyring,
                throttle,
                claim_waiters,
                scrape,
                live,
                closing,
            }),
        }
    }

    /// Use cases of runs.
    pub fn engine(&self) -> &Engine {
        self.inner.syncs.engine()
    }

    /// Use cases of syncs.
    pub fn syncs(&self) -> &Syncs {
        &self.inner.syncs
    }

    /// Use cases of graphs.
    pub fn graphs(&self) -> &Graphs {
        &self.inner.graphs
    }

    pub(crate) fn access(&self) -> &Access {
        &self.inner.access
    }

    /// Whether the server belongs to one user of this machine. Its sign-in page then explains one-time links.
    pub fn is_local(&self) -> bool {
        match self.access() {
            Access::Local(_) => true,
            Access::Tokens | Access::Open { .. } | Access::Fixed(_) => false,
        }
    }

    /// Ends all waiting requests: long polls return at once, event streams are closed.
    pub fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    /// Becomes true when the server shuts down. Every handler that waits must also wait for this.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    /// Cached database snapshot for `/metrics`.
    pub(crate) fn scrape(&self) -> &ScrapeCache {
        &self.inner.scrape
    }

    /// Verifier of tokens and sessions.
    pub(crate) fn keyring(&self) -> &CredentialCache {
        &self.inner.keyring
    }

    /// Throttle for unknown secrets.
    pub(crate) fn throttle(&self) -> &Throttle {
        &self.inner.throttle
    }

    pub(crate) fn claim_waiters(&self) -> &ClaimWaiters {
        &self.inner.claim_waiters
    }

    /// Hub that delivers events to live streams.
    pub(crate) fn live(&self) -> &Hub {
        &self.inner.live
    }
}
