//! Alerts: detection, the outbox, and delivery to people.
//!
//! A commit that ends a run also records a notice of it. A periodic check finds conditions that no commit reports. Both
//! raise alerts, and alerts become messages: at most one per group and interval. Delivery is at least once, with the
//! same message id on each attempt.

mod detection;
mod mail;
mod outbox;
mod target;
mod webhook;

pub use outbox::{DeliveryCounts, TargetTest};
pub use target::{Address, BodyFormat, Channel, Mail, Security, Target, Webhook};

use crate::Engine;
use crate::upkeep::part;
use std::time::Duration;
use tidemill_core::limits;

/// Alert targets, and the thresholds of the periodic checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSettings {
    /// A process without targets sends nothing; other processes do.
    pub targets: Vec<Target>,
    /// Largest normal backlog of a queue or project, in runs or messages; 0 disables the check.
    pub queue_depth: u32,
    /// How long a partition may make no progress; zero disables the check.
    pub stuck_after: Duration,
    /// How old a watermark may become; zero disables the check.
    pub watermark_after: Duration,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            queue_depth: limits::QUEUE_DEPTH_ALERT,
            stuck_after: Duration::from_secs(limits::STUCK_SECS),
            watermark_after: Duration::from_secs(limits::WATERMARK_AGE_SECS),
        }
    }
}

/// Time between two checks for conditions that no commit reports.
pub(crate) const CHECK_EVERY: Duration = Duration::from_mins(1);

impl Engine {
    /// Detects conditions, raises alerts and sends the due messages, once. A step that fails does not stop the others.
    pub async fn process_alerts(&self) -> Result<DeliveryCounts, tidemill_store::Error> {
        let mut failure = None;
        part(&mut failure, self.raise_run_alerts()).await;
        part(&mut failure, Box::pin(self.check_conditions())).await;
        let sent = part(&mut failure, Box::pin(self.send_alerts())).await;
        failure.map_or(Ok(sent.unwrap_or_default()), Err)
    }
}
