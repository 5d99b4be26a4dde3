//! Cache of the key statistics.
//!
//! They cover all runs of a week, which takes a while with a million runs. So they are computed at most once every few
//! seconds for all users. A request only waits if there is no recent result at all: on the first request, or after a
//! longer time without any.

use crate::page_context::PageContext;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_client::{Client, Error};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::stats::Stats;
use tokio::time::Instant;

/// Age after which the statistics are recomputed in the background.
const FRESH_TIME: Duration = Duration::from_secs(5);
/// Age after which the statistics are too old to be shown.
const AGE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of cached projects.
const PROJECTS_MAX: usize = 256;

/// Statistics by the projects of the user.
#[derive(Default, Clone)]
pub(crate) struct StatsCache {
    entries: Arc<Mutex<HashMap<ProjectSet, CachedStats>>>,
    /// Held while the statistics are computed and others wait for them.
    computing: Arc<tokio::sync::Mutex<()>>,
}

struct CachedStats {
    stats: Stats,
    at: Instant,
    is_refreshing: bool,
}

impl StatsCache {
    fn entries(&self) -> MutexGuard<'_, HashMap<ProjectSet, CachedStats>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the statistics of the projects that the user sees.
    pub(crate) async fn get(&self, context: &PageContext) -> Result<Stats, Error> {
        self.get_or_compute(context.caller.projects.clone(), &context.client).await
    }

    async fn get_or_compute(&self, projects: ProjectSet, client: &Client) -> Result<Stats, Error> {
        if let Some(stats) = self.cached(&projects, client) {
            return Ok(stats);
        }
        let _guard = self.computing.lock().await;
        if let Some(stats) = self.cached(&projects, client) {
            return Ok(stats);
        }
        let stats = client.stats().await?;
        self.insert(projects, stats.clone());
        Ok(stats)
    }

    /// Returns the cached statistics unless they are too old, and starts a refresh if they are not fresh.
    fn cached(&self, projects: &ProjectSet, client: &Client) -> Option<Stats> {
        let mut all = self.entries();
        let entry = all.get_mut(projects).filter(|entry| entry.at.elapsed() < AGE_MAX)?;
        if entry.at.elapsed() > FRESH_TIME && !entry.is_refreshing {
            entry.is_refreshing = true;
            let (cache, client, projects) = (self.clone(), client.clone(), projects.clone());
            tokio::spawn(async move {
                match client.stats().await {
                    Ok(stats) => cache.insert(projects, stats),
                    // The next request computes them itself and reports the error.
                    Err(_) => drop(cache.entries().remove(&projects)),
                }
            });
        }
        Some(entry.stats.clone())
    }

    fn insert(&self, projects: ProjectSet, stats: Stats) {
        let mut all = self.entries();
        if all.len() >= PROJECTS_MAX && !all.contains_key(&projects) {
            all.clear();
        }
        all.insert(projects, CachedStats { stats, at: Instant::now(), is_refreshing: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};
    use tidemill_client::{ApiRequest, ApiResponse, Transport, TransportFuture};

    /// Transport whose responses contain the number of requests so far.
    #[derive(Default, Clone)]
    struct Counter(Arc<AtomicI64>);

    impl Transport for Counter {
        fn send(&self, _request: ApiRequest) -> TransportFuture<'_, ApiResponse> {
            let requests = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            let stats = Stats { queued_count: requests, ..Stats::default() };
            let body = serde_json::to_vec(&stats).unwrap().into();
            Box::pin(async move { Ok(ApiResponse { status: http::StatusCode::OK, body, retry_after: None }) })
        }
    }

    #[tokio::test]
    async fn stale_statistics_are_recomputed_before_the_response() {
        let (cache, counter) = (StatsCache::default(), Counter::default());
        let client = Client::new(counter.clone());
        assert_eq!(cache.get_or_compute(ProjectSet::All, &client).await.unwrap().queued_count, 1);
        assert_eq!(
            cache.get_or_compute(ProjectSet::All, &client).await.unwrap().queued_count,
            1,
            "still fresh"
        );
        let long_ago = Instant::now().checked_sub(AGE_MAX).expect("uptime exceeds the cache time");
        cache.entries().get_mut(&ProjectSet::All).unwrap().at = long_ago;
        let (one, other) = tokio::join!(
            cache.get_or_compute(ProjectSet::All, &client),
            cache.get_or_compute(ProjectSet::All, &client)
        );
        assert_eq!(
            (one.unwrap().queued_count, other.unwrap().queued_count),
            (2, 2),
            "both requests share one computation"
        );
        assert_eq!(counter.0.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn statistics_of_many_projects_are_bounded() {
        let cache = StatsCache::default();
        for number in 0..1_000 {
            cache.insert(ProjectSet::only([format!("project-{number}")]), Stats::default());
            assert!(cache.entries().len() <= PROJECTS_MAX);
        }
        assert!(
            cache.entries().contains_key(&ProjectSet::of(Some("project-999"))),
            "the latest entry is entry"
        );
    }
}
