//! What a supplier is started with.

use crate::behaviour::Behaviour;
use crate::life::Churn;
use crate::price::Distribution;
use std::net::{Ipv4Addr, SocketAddr};
use tidemill_core::Timestamp;

/// The most stones that a supplier starts with.
pub const MAX_STONES: u32 = 2_000_000;

/// What a supplier is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// How many stones there are: up to [`MAX_STONES`].
    pub stones: u32,
    /// The seed that everything follows from.
    pub seed: u64,
    /// The one account that is accepted; any account without it.
    pub account: Option<Account>,
    /// How prices are spread.
    pub distribution: Distribution,
    /// What every stone costs where all cost the same, in cents.
    pub one_price_cents: u32,
    /// How many stones of a thousand the pipeline's usual filters leave out: without a picture, lent, too
    /// small.
    pub off_query_per_mille: u32,
    /// How many of the stones have a NUL character in a text.
    pub nul_stones: u32,
    /// How many of the stones have no certificate.
    pub uncertified_stones: u32,
    /// When the catalogue was finished: every stone was last changed within the 30 days before.
    pub epoch: Timestamp,
    /// How it misbehaves from the start.
    pub behaviour: Behaviour,
    /// How stones change by themselves from the start.
    pub churn: Churn,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("username", &self.username).finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            stones: 1_000,
            seed: 1,
            account: None,
            distribution: Distribution::Skewed,
            one_price_cents: 123_456,
            off_query_per_mille: 0,
            nul_stones: 0,
            uncertified_stones: 0,
            // 2026-01-01T00:00:00Z
            epoch: crate::clock::from_micros(1_767_225_600_000_000),
            behaviour: Behaviour::default(),
            churn: Churn::default(),
        }
    }
}
