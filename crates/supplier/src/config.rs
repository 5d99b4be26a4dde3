//! Configuration of a supplier.

use crate::behaviour::Behaviour;
use crate::changes::Churn;
use crate::price::Distribution;
use std::net::{Ipv4Addr, SocketAddr};
use tidemill_core::Timestamp;

/// Maximum number of stones at the start.
pub const MAX_STONES: u32 = 2_000_000;

/// Configuration of a supplier.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Number of stones, at most [`MAX_STONES`].
    pub stones: u32,
    /// Seed of all generated data.
    pub seed: u64,
    /// The only accepted account; `None` accepts every account.
    pub account: Option<Account>,
    pub distribution: Distribution,
    /// Price of every stone with [`Distribution::OnePrice`].
    pub one_price_cents: u32,
    /// Stones per thousand that the default filters of the pipeline exclude: without a picture, on memo, too small.
    pub off_query_per_mille: u32,
    /// Number of stones with a NUL character in a text.
    pub nul_stones: u32,
    /// Number of stones without a certificate.
    pub uncertified_stones: u32,
    /// Time of the catalogue: every stone was last changed within the 30 days before.
    pub epoch: Timestamp,
    pub behaviour: Behaviour,
    pub churn: Churn,
}

/// Credentials of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    pub username: String,
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
