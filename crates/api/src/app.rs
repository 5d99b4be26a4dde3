//! Shared state of all routes.

use crate::access::{Access, LookupQueue, RefusalLimiter};
use crate::claim_waiters::ClaimWaiters;
use crate::live::Hub;
use crate::metrics::ScrapeCache;
use crate::runs::ClaimCache;
use std::sync::Arc;
use tidemill_core::access::NewAuditRecord;
use tidemill_engine::Engine;
use tidemill_engine::access::CredentialCache;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::Syncs;
use tidemill_store::AuditEntry;
use tokio::sync::watch;

/// Shared state of all routes. Cheap to clone.
///
/// The handler of an audited request gets the app of its call: its use cases write the audit entry with the change.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
    call: Option<Arc<Call>>,
}

/// Use cases of one audited request.
struct Call {
    entry: Arc<AuditEntry>,
    syncs: Syncs,
    graphs: Graphs,
}

struct Inner {
    syncs: Syncs,
    graphs: Graphs,
    access: Access,
    keyring: CredentialCache,
    lookups: LookupQueue,
    refusals: RefusalLimiter,
    claim_cache: ClaimCache,
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
        let (lookups, scrape) = (LookupQueue::default(), ScrapeCache::default());
        Self {
            inner: Arc::new(Inner {
                syncs,
                graphs,
                access,
                keyring,
                lookups,
                refusals: RefusalLimiter::default(),
                claim_cache: ClaimCache::default(),
                claim_waiters,
                scrape,
                live,
                closing,
            }),
            call: None,
        }
    }

    /// Returns the app of one request, whose use cases write this audit entry.
    pub(crate) fn for_call(&self, entry: Arc<AuditEntry>) -> Self {
        let (syncs, graphs) =
            (self.inner.syncs.for_call(entry.clone()), self.inner.graphs.for_call(entry.clone()));
        Self { inner: self.inner.clone(), call: Some(Arc::new(Call { entry, syncs, graphs })) }
    }

    /// Adds details to the audit entry of this request, if it has one. Must be called before the change.
    pub(crate) fn annotate_audit(&self, change: impl FnOnce(&mut NewAuditRecord)) {
        if let Some(call) = &self.call {
            call.entry.annotate(change);
        }
    }

    /// Whether this request has an audit entry.
    pub(crate) fn is_audited(&self) -> bool {
        self.call.is_some()
    }

    /// Marks this request as one that changes nothing, so that it writes no audit entry.
    pub(crate) fn skip_audit(&self) {
        if let Some(call) = &self.call {
            call.entry.skip();
        }
    }

    /// Use cases of runs.
    pub fn engine(&self) -> &Engine {
        self.syncs().engine()
    }

    /// Use cases of syncs.
    pub fn syncs(&self) -> &Syncs {
        self.call.as_ref().map_or(&self.inner.syncs, |call| &call.syncs)
    }

    /// Use cases of graphs.
    pub fn graphs(&self) -> &Graphs {
        self.call.as_ref().map_or(&self.inner.graphs, |call| &call.graphs)
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

    /// Queue for look-ups of secrets that this process has not seen before.
    pub(crate) fn lookups(&self) -> &LookupQueue {
        &self.inner.lookups
    }

    /// Limiter of recorded refusals.
    pub(crate) fn refusals(&self) -> &RefusalLimiter {
        &self.inner.refusals
    }

    /// Cache of the claims of runs.
    pub(crate) fn claim_cache(&self) -> &ClaimCache {
        &self.inner.claim_cache
    }

    pub(crate) fn claim_waiters(&self) -> &ClaimWaiters {
        &self.inner.claim_waiters
    }

    /// Hub that delivers events to live streams.
    pub(crate) fn live(&self) -> &Hub {
        &self.inner.live
    }
}
