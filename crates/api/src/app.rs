//! What every route works with.

use crate::access::{Access, Throttle};
use crate::waiting::Room;
use std::sync::Arc;
use tidemill_engine::Engine;
use tidemill_engine::access::Keyring;
use tidemill_engine::sync::Syncs;

/// What every route works with; cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    syncs: Syncs,
    access: Access,
    keyring: Keyring,
    throttle: Throttle,
    room: Room,
}

impl App {
    /// The door on these use cases, with this kind of access.
    pub fn new(syncs: Syncs, access: Access) -> Self {
        let room = Room::new(syncs.engine().store().clone());
        let keyring = Keyring::new(syncs.engine().clone());
        let throttle = Throttle::default();
        Self { inner: Arc::new(Inner { syncs, access, keyring, throttle, room }) }
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
}
