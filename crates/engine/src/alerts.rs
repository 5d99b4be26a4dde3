//! Alerts: found, handed to the outbox, and taken to people.
//!
//! What happens in a commit is noted in that commit. What only a look can find is looked for now and then. Both become
//! alerts, and alerts become messages, at most one about a group in an interval. A message is tried until its target
//! has it: at least once, always under the same id.

mod look;
mod mail;
mod post;
mod target;
mod webhook;

pub use post::{Sent, Tested};
pub use target::{Address, Mail, Security, Shape, Target, Way, Webhook};

use crate::Engine;
use crate::upkeep::part;
use std::time::Duration;
use tidemill_core::limits;

/// Who is told, and what is worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSettings {
    /// Who is told. A process that knows nobody leaves it to others.
    pub targets: Vec<Target>,
    /// More than so many runs or messages in one place are too many; 0 for never.
    pub queue_depth: u32,
    /// How long a partition may make no progress; zero for ever.
    pub stuck_after: Duration,
    /// How old a watermark may be; zero for ever.
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

/// Time between two looks at what no commit tells.
pub(crate) const LOOK_EVERY: Duration = Duration::from_mins(1);

impl Engine {
    /// Finds what people should know, and sends what is due; once. A part that fails does not stop the others.
    pub async fn tell(&self) -> Result<Sent, tidemill_store::Error> {
        let mut failure = None;
        part(&mut failure, self.hear_of_runs()).await;
        part(&mut failure, Box::pin(self.look_around())).await;
        let sent = part(&mut failure, Box::pin(self.send_alerts())).await;
        failure.map_or(Ok(sent.unwrap_or_default()), Err)
    }
}
