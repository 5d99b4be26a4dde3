//! The key metrics, as they were a moment ago.
//!
//! They count over all runs of a week, which takes a while where there are a million. So they are counted at most
//! once in a few seconds for everybody who looks, and nobody waits for the next count but the first.

use crate::visitor::Visitor;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_client::{Client, Error};
use tidemill_core::stats::Stats;
use tokio::time::Instant;

/// How old the numbers may be before they are counted again.
const FRESH: Duration = Duration::from_secs(5);
/// Projects whose numbers are kept.
const PROJECTS_MAX: usize = 256;

/// The numbers by project, or of all.
#[derive(Default, Clone)]
pub(crate) struct Figures {
    kept: Arc<Mutex<HashMap<Option<String>, Kept>>>,
}

struct Kept {
    stats: Stats,
    at: Instant,
    counting: bool,
}

impl Figures {
    fn kept(&self) -> MutexGuard<'_, HashMap<Option<String>, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of what a visitor sees.
    pub(crate) async fn of(&self, visitor: &Visitor) -> Result<Stats, Error> {
        let project = visitor.caller.project.clone();
        if let Some(stats) = self.known(project.as_deref(), &visitor.client) {
            return Ok(stats);
        }
        let stats = visitor.client.stats().await?;
        self.keep(project, stats.clone());
        Ok(stats)
    }

    /// What is known; where it is old, somebody begins to count again.
    fn known(&self, project: Option<&str>, client: &Client) -> Option<Stats> {
        let project = project.map(str::to_owned);
        let mut all = self.kept();
        let kept = all.get_mut(&project)?;
        if kept.at.elapsed() > FRESH && !kept.counting {
            kept.counting = true;
            let (figures, client) = (self.clone(), client.clone());
            tokio::spawn(async move {
                match client.stats().await {
                    Ok(stats) => figures.keep(project, stats),
                    // The next reader finds nothing, and hears what is wrong.
                    Err(_) => drop(figures.kept().remove(&project)),
                }
            });
        }
        Some(kept.stats.clone())
    }

    fn keep(&self, project: Option<String>, stats: Stats) {
        let mut all = self.kept();
        if all.len() >= PROJECTS_MAX && !all.contains_key(&project) {
            all.clear();
        }
        all.insert(project, Kept { stats, at: Instant::now(), counting: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_many_projects_take_a_bounded_place() {
        let figures = Figures::default();
        for number in 0..1_000 {
            figures.keep(Some(format!("project-{number}")), Stats::default());
            assert!(figures.kept().len() <= PROJECTS_MAX);
        }
        assert!(figures.kept().contains_key(&Some("project-999".to_owned())), "the last is there");
    }
}
