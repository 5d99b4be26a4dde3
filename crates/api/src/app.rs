//! What every route works with.

use crate::access::Access;
use crate::live::Hub;
use crate::waiting::Room;
use std::sync::Arc;
use tidemill_engine::Engine;
use tidemill_engine::sync::Syncs;
use tokio::sync::watch;

/// What every route works with; cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    syncs: Syncs,
    access: Access,
    room: Room,
    live: Hub,
    closing: watch::Sender<bool>,
}

impl App {
    /// The door on these use cases, with this kind of access.
    pub fn new(syncs: Syncs, access: Access) -> Self {
        let room = Room::new(syncs.engine().store().clone());
        let live = Hub::new(syncs.engine().store().clone());
        Self { inner: Arc::new(Inner { syncs, access, room, live, closing: watch::Sender::new(false) }) }
    }

    /// The use cases of runs.
    pub fn engine(&self) -> &Engine {
        self.inner.syncs.engine()
    }

    /// The use cases of syncs.
    pub fn syncs(&self) -> &Syncs {
        &self.inner.syncs
    }

    pub(crate) fn access(&self) -> &Access {
        &self.inner.access
    }

    /// Where claims wait for something to claim.
    pub(crate) fn room(&self) -> &Room {
        &self.inner.room
    }

    /// What hands events to live streams.
    pub(crate) fn live(&self) -> &Hub {
        &self.inner.live
    }

    /// Tells everything that waits or streams without end to come to one: the server is about to stop.
    pub fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    /// Becomes true when the server is about to stop.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }
}
