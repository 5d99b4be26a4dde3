//! The key metrics, as they were a moment ago.
//!
//! They count over all runs of a week, which takes a while where there are a million. So they are counted at most
//! once in a few seconds for everybody who looks, and nobody waits for the next count but whoever comes first, and
//! whoever comes when nobody has looked for so long that the numbers would mislead.

use crate::visitor::Visitor;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_client::{Client, Error};
use tidemill_core::stats::Stats;
use tokio::time::Instant;

/// How old the numbers may be before they are counted again.
const FRESH: Duration = Duration::from_secs(5);
/// How old the numbers may be at all: nobody is shown older ones without a word.
const STALE: Duration = Duration::from_secs(30);
/// Projects whose numbers are kept.
const PROJECTS_MAX: usize = 256;

/// The numbers by project, or of all.
#[derive(Default, Clone)]
pub(crate) struct Figures {
    kept: Arc<Mutex<HashMap<Option<String>, Kept>>>,
    /// Held by whoever counts while others wait for it.
    turn: Arc<tokio::sync::Mutex<()>>,
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
        self.count(visitor.caller.project.clone(), &visitor.client).await
    }

    async fn count(&self, project: Option<String>, client: &Client) -> Result<Stats, Error> {
        if let Some(stats) = self.known(project.as_deref(), client) {
            return Ok(stats);
        }
        let _turn = self.turn.lock().await;
        if let Some(stats) = self.known(project.as_deref(), client) {
            return Ok(stats);
        }
        let stats = client.stats().await?;
        self.keep(project, stats.clone());
        Ok(stats)
    }

    /// What is known, and not too old; where it is old, somebody begins to count again.
    fn known(&self, project: Option<&str>, client: &Client) -> Option<Stats> {
        let project = project.map(str::to_owned);
        let mut all = self.kept();
        let kept = all.get_mut(&project).filter(|kept| kept.at.elapsed() < STALE)?;
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
    use std::sync::atomic::{AtomicI64, Ordering};
    use tidemill_client::{Answer, Call, Later, Transport};

    /// A door whose answer says how often it was asked.
    #[derive(Default, Clone)]
    struct Counter(Arc<AtomicI64>);

    impl Transport for Counter {
        fn carry(&self, _call: Call) -> Later<'_> {
            let asked = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            let stats = Stats { queued_count: asked, ..Stats::default() };
            let body = serde_json::to_vec(&stats).unwrap().into();
            Box::pin(async move { Ok(Answer { status: http::StatusCode::OK, body, retry_after: None }) })
        }
    }

    #[tokio::test]
    async fn numbers_that_nobody_looked_at_for_long_are_waited_for() {
        let (figures, counter) = (Figures::default(), Counter::default());
        let client = Client::new(counter.clone());
        assert_eq!(figures.count(None, &client).await.unwrap().queued_count, 1);
        assert_eq!(figures.count(None, &client).await.unwrap().queued_count, 1, "they are fresh");
        let long_ago = Instant::now().checked_sub(STALE).expect("the machine is up for longer");
        figures.kept().get_mut(&None).unwrap().at = long_ago;
        let (one, other) = tokio::join!(figures.count(None, &client), figures.count(None, &client));
        assert_eq!(
            (one.unwrap().queued_count, other.unwrap().queued_count),
            (2, 2),
            "both wait for one count"
        );
        assert_eq!(counter.0.load(Ordering::SeqCst), 2);
    }

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
