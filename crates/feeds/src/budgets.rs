//! Rate limits that several feeds of a project share.

use crate::rate_limiter::RateLimiter;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The shared rate limiters of a process, by project and name of the budget.
#[derive(Debug, Default, Clone)]
pub struct Budgets(Arc<Mutex<HashMap<(String, String), Budget>>>);

#[derive(Debug)]
struct Budget {
    limiter: Arc<RateLimiter>,
    /// Rate of each open feed, in requests per second. 0 means unlimited.
    rates: HashMap<String, f64>,
    /// Lowest rate of all feeds of the budget, also of those that only other processes have opened. 0 means unlimited.
    lowest: f64,
}

/// The share of one feed in a budget.
#[derive(Debug)]
pub(crate) struct BudgetMember {
    budgets: Budgets,
    /// Project and name of the budget.
    key: (String, String),
    feed: String,
}

impl Budgets {
    /// Adds a feed to a budget of its project. A feed has one budget.
    pub(crate) fn join(&self, project: &str, name: &str, feed: &str, per_second: f64) -> BudgetMember {
        let key = (project.to_owned(), name.to_owned());
        let member = BudgetMember { budgets: self.clone(), key, feed: feed.to_owned() };
        self.leave(feed);
        member.set_rate(per_second);
        member
    }
}

impl Budgets {
    /// Sets the lowest rate of all stored feeds of each budget, by project and name: this process's share of it.
    /// Budgets that are not named are limited by their open feeds alone.
    pub fn set_lowest(&self, lowest: impl IntoIterator<Item = ((String, String), f64)>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for budget in known.values_mut() {
            budget.lowest = 0.0;
        }
        for (key, rate) in lowest {
            known.entry(key).or_default().lowest = rate;
        }
        for budget in known.values() {
            budget.apply();
        }
    }

    /// Removes a feed from its budget. Names of feeds are unique over all projects.
    pub(crate) fn leave(&self, feed: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for budget in known.values_mut() {
            if budget.rates.remove(feed).is_some() {
                budget.apply();
            }
        }
    }
}

impl BudgetMember {
    /// Returns the rate limiter that all feeds of the budget use.
    pub(crate) fn limiter(&self) -> Arc<RateLimiter> {
        let mut known = self.budgets.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(self.key.clone()).or_default().limiter.clone()
    }

    /// Sets the rate of this feed. The lowest limit of the feeds of the budget applies to all of them.
    pub(crate) fn set_rate(&self, per_second: f64) {
        let mut known = self.budgets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = known.entry(self.key.clone()).or_default();
        budget.rates.insert(self.feed.clone(), per_second);
        budget.apply();
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { limiter: Arc::new(RateLimiter::new(0.0)), rates: HashMap::new(), lowest: 0.0 }
    }
}

impl Budget {
    fn apply(&self) {
        let limits = self.rates.values().copied().chain([self.lowest]).filter(|rate| *rate > 0.0);
        self.limiter.set_rate(limits.reduce(f64::min).unwrap_or(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn feeds_with_one_budget_of_a_project_share_a_limiter() {
        let budgets = Budgets::default();
        let limiter = |project, name, feed| budgets.join(project, name, feed, 5.0).limiter();
        let shop = limiter("p", "shop", "a");
        assert!(Arc::ptr_eq(&shop, &limiter("p", "shop", "b")));
        assert!(!Arc::ptr_eq(&shop, &limiter("p", "other", "c")));
        assert!(!Arc::ptr_eq(&shop, &limiter("q", "shop", "d")));
    }

    /// Returns the time of three requests.
    async fn time_of_three(limiter: &RateLimiter) -> Duration {
        let began = Instant::now();
        for _ in 0..3 {
            limiter.acquire().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn lowest_limit_of_the_feeds_applies() {
        let budgets = Budgets::default();
        let slow = budgets.join("p", "shop", "slow", 1.0);
        let fast = budgets.join("p", "shop", "fast", 100.0);
        let unlimited = budgets.join("p", "shop", "unlimited", 0.0);
        assert!(time_of_three(&fast.limiter()).await >= Duration::from_millis(1_900));
        unlimited.set_rate(0.0);
        assert!(time_of_three(&unlimited.limiter()).await >= Duration::from_millis(2_900));
        slow.set_rate(100.0);
        assert!(time_of_three(&fast.limiter()).await < Duration::from_secs(2));
    }

    /// Each process has opened one feed of the budget, and both know the rates of all feeds.
    #[tokio::test(start_paused = true)]
    async fn processes_with_one_feed_each_share_the_lowest_rate() {
        let (one, other) = (Budgets::default(), Budgets::default());
        let key = |name: &str| ("p".to_owned(), name.to_owned());
        // Half of 2 requests per second for each of the two processes.
        let lowest = [(key("shop"), 1.0), (key("other"), 0.5)];
        let fast = one.join("p", "shop", "fast", 50.0);
        assert!(time_of_three(&fast.limiter()).await < Duration::from_secs(1));
        one.set_lowest(lowest.clone());
        other.set_lowest(lowest);
        let slow = other.join("p", "shop", "slow", 1.0);
        let both = tokio::join!(time_of_three_owned(fast.limiter()), time_of_three_owned(slow.limiter()));
        assert!(both.0 >= Duration::from_millis(1_900) && both.1 >= Duration::from_millis(1_900), "{both:?}");
        // Without the slow feed, the rate of the other feed applies again.
        one.set_lowest([]);
        assert!(time_of_three(&fast.limiter()).await < Duration::from_secs(2));
    }

    async fn time_of_three_owned(limiter: Arc<RateLimiter>) -> Duration {
        time_of_three(&limiter).await
    }

    #[tokio::test(start_paused = true)]
    async fn feed_that_changes_its_budget_limits_only_the_new_one() {
        let budgets = Budgets::default();
        let stays = budgets.join("p", "shop", "stays", 100.0);
        budgets.join("p", "shop", "moves", 1.0);
        let moved = budgets.join("p", "other", "moves", 1.0);
        assert!(time_of_three(&stays.limiter()).await < Duration::from_secs(1));
        assert!(time_of_three(&moved.limiter()).await >= Duration::from_millis(1_900));
    }
}
