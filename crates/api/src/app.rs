//! What every route works with.

use crate::access::{Access, Throttle};
use crate::live::Hub;
use crate::metrics::Scrape;
use crate::waiting::Room;
use std::sync::Arc;
use tidemill_engine::Engine;
use tidemill_engine::access::Keyring;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::Syncs;
use tokio::sync::watch;

/// What every route works with; cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    syncs: Syncs,
    graphs: Graphs,
    access: Access,
    keyring: Keyring,
    throttle: Throttle,
    room: Room,
    scrape: Scrape,
    live: Hub,
    closing: watch::Sender<bool>,
}

impl App {
    /// The door on these use cases, with this kind of access.
    pub fn new(syncs: Syncs, access: Access) -> Self {
        let closing = watch::Sender::new(false);
        let room = Room::new(syncs.engine().store().clone(), closing.subscribe());
        let live = Hub::new(syncs.engine().store().clone());
        let keyring = Keyring::new(syncs.engine().clone());
        let graphs = Graphs::new(syncs.engine().clone(), GraphSettings::default());
        let (throttle, scrape) = (Throttle::default(), Scrape::default());
        Self {
            inner: Arc::new(Inner { syncs, graphs, access, keyring, throttle, room, scrape, live, closing }),
        }
    }

    /// The use cases of runs.
    pub fn engine(&self) -> &Engine {
        self.inner.syncs.engine()
    }

    /// The use cases of syncs.
    pub fn syncs(&self) -> &Syncs {
        &self.inner.syncs
    }

    /// The use cases of graphs.
    pub fn graphs(&self) -> &Graphs {
        &self.inner.graphs
    }

    pub(crate) fn access(&self) -> &Access {
        &self.inner.access
    }

    /// Lets whoever waits end: long-polls are answered at once with what they have, streams say goodbye.
    pub fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    /// Becomes true when the server is to end. Whatever keeps a caller waiting waits for this too.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    /// What the last look at the database for `/metrics` gave.
    pub(crate) fn scrape(&self) -> &Scrape {
        &self.inner.scrape
    }

    /// What tokens and sessions are worth.
    pub(crate) fn keyring(&self) -> &Keyring {
        &self.inner.keyring
    }

    /// Who has to wait before trying another secret.
    pub(crate) fn throttle(&self) -> &Throttle {
        &self.inner.throttle
    }

    /// Where claims wait for something to claim.
    pub(crate) fn room(&self) -> &Room {
        &self.inner.room
    }

    /// What hands events to live streams.
    pub(crate) fn live(&self) -> &Hub {
        &self.inner.live
    }
}
