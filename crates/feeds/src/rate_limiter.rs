//! Rate limiter of one feed, shared by all tasks that send requests to it.
//!
//! Tasks are served in order of arrival. A cancelled waiter does not use up a slot, and a new rate also applies to
//! tasks that already wait.

use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Timers fire about a millisecond late. The limiter may catch up this much, so that the average equals the configured
/// rate.
const LATENESS_MAX: Duration = Duration::from_millis(10);

/// Limits the rate of requests to a feed.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    pace: watch::Sender<Pace>,
    /// When the last request was due. Its lock is the queue: tokio grants it in order of arrival.
    last: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace {
    /// Time between two requests; zero means unlimited.
    interval: Duration,
    /// No request is sent before this time.
    resumes_at: Option<Instant>,
}

impl RateLimiter {
    pub(crate) fn new(per_second: f64) -> Self {
        let pace = Pace { interval: interval(per_second), resumes_at: None };
        Self { pace: watch::Sender::new(pace), last: Mutex::new(None) }
    }

    /// Changes the rate, also for tasks that already wait.
    pub(crate) fn set_rate(&self, per_second: f64) {
        let interval = interval(per_second);
        self.pace.send_if_modified(|pace| std::mem::replace(&mut pace.interval, interval) != interval);
    }

    /// Sends no request for `wait`, because the feed asked for it.
    pub(crate) fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        self.pace.send_modify(|pace| pace.resumes_at = pace.resumes_at.max(Some(until)));
    }

    /// Waits until the caller may send a request.
    pub(crate) async fn acquire(&self) {
        let pace = *self.pace.borrow();
        if pace.interval.is_zero() && pace.resumes_at.is_none_or(|at| at <= Instant::now()) {
            return;
        }
        let mut changes = self.pace.subscribe();
        let mut last = self.last.lock().await;
        loop {
            let pace = *changes.borrow_and_update();
            let now = Instant::now();
            let due = last.map(|at| at + pace.interval).max(pace.resumes_at).unwrap_or(now);
            if due <= now {
                let earliest = now.checked_sub(LATENESS_MAX).unwrap_or(now);
                *last = Some(due.max(earliest));
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                news = changes.changed() => if news.is_err() { return },
            }
        }
    }
}

fn interval(per_second: f64) -> Duration {
    if per_second.is_finite() && per_second > 0.0 {
        Duration::try_from_secs_f64(1.0 / per_second).unwrap_or(Duration::MAX).min(Duration::from_hours(1))
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    // With `start_paused`, tokio advances the clock from timer to timer.
    #[tokio::test(start_paused = true)]
    async fn rate_holds_over_all_tasks_in_order_of_arrival() {
        let rate_limiter = Arc::new(RateLimiter::new(25.0));
        let begun = Instant::now();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..51)
            .map(|number| {
                let (rate_limiter, order) = (Arc::clone(&rate_limiter), Arc::clone(&order));
                tokio::spawn(async move {
                    rate_limiter.acquire().await;
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = begun.elapsed();
        assert!((Duration::from_millis(1_980)..Duration::from_millis(2_060)).contains(&took), "{took:?}");
        assert_eq!(*order.lock().unwrap(), (0..51).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn new_rate_applies_to_waiting_tasks() {
        let rate_limiter = Arc::new(RateLimiter::new(0.001));
        rate_limiter.acquire().await;
        let begun = Instant::now();
        let waiter = tokio::spawn({
            let rate_limiter = Arc::clone(&rate_limiter);
            async move { rate_limiter.acquire().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        rate_limiter.set_rate(2.0);
        waiter.await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waiter_does_not_use_up_a_slot() {
        let rate_limiter = RateLimiter::new(1.0);
        rate_limiter.acquire().await;
        let begun = Instant::now();
        for _ in 0..5 {
            assert!(tokio::time::timeout(Duration::from_millis(10), rate_limiter.acquire()).await.is_err());
        }
        rate_limiter.acquire().await;
        assert!(begun.elapsed() < Duration::from_millis(1_100), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn pause_applies_even_without_a_rate_limit() {
        let rate_limiter = RateLimiter::new(0.0);
        rate_limiter.pause(Duration::from_secs(3));
        let begun = Instant::now();
        rate_limiter.acquire().await;
        assert!(begun.elapsed() >= Duration::from_secs(3));
        rate_limiter.acquire().await;
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_not_saved_up() {
        let rate_limiter = RateLimiter::new(10.0);
        rate_limiter.acquire().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let begun = Instant::now();
        for _ in 0..11 {
            rate_limiter.acquire().await;
        }
        assert!(begun.elapsed() >= Duration::from_millis(980), "{:?}", begun.elapsed());
    }

    #[test]
    fn invalid_rates_mean_unlimited() {
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(interval(odd), Duration::ZERO);
        }
        assert_eq!(interval(25.0), Duration::from_millis(40));
        assert_eq!(interval(f64::MIN_POSITIVE), Duration::from_hours(1));
    }
}
