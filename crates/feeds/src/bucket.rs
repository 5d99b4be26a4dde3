//! The rate limit of one feed, shared by all tasks that ask it.
//!
//! Whoever comes first is served first. A waiter that goes away costs nobody a turn, and a new rate holds for
//! those who wait already.

use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Timers are late by about a millisecond. So much may be caught up, so that the mean is the rate that was
/// asked for.
const LATENESS_MAX: Duration = Duration::from_millis(10);

/// The rate at which a feed may be asked.
#[derive(Debug)]
pub(crate) struct Bucket {
    pace: watch::Sender<Pace>,
    /// When the last request was due. Its lock is the queue: tokio hands it over in order of arrival.
    last: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace {
    /// Time between two requests; zero is no limit.
    interval: Duration,
    /// Nobody is served before this time.
    resumes_at: Option<Instant>,
}

impl Bucket {
    pub(crate) fn new(per_second: f64) -> Self {
        let pace = Pace { interval: interval(per_second), resumes_at: None };
        Self { pace: watch::Sender::new(pace), last: Mutex::new(None) }
    }

    /// Changes the rate, also for those who wait.
    pub(crate) fn set_rate(&self, per_second: f64) {
        let interval = interval(per_second);
        self.pace.send_if_modified(|pace| std::mem::replace(&mut pace.interval, interval) != interval);
    }

    /// Serves nobody for a while: the feed asked for it.
    pub(crate) fn rest(&self, wait: Duration) {
        let until = Instant::now() + wait;
        self.pace.send_modify(|pace| pace.resumes_at = pace.resumes_at.max(Some(until)));
    }

    /// Waits for the caller's turn.
    pub(crate) async fn take(&self) {
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

    // Time stands still but for the timers: `start_paused` moves it from one to the next.
    #[tokio::test(start_paused = true)]
    async fn the_rate_holds_over_all_tasks_and_the_first_comes_first() {
        let bucket = Arc::new(Bucket::new(25.0));
        let begun = Instant::now();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..51)
            .map(|number| {
                let (bucket, order) = (Arc::clone(&bucket), Arc::clone(&order));
                tokio::spawn(async move {
                    bucket.take().await;
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
    async fn a_new_rate_holds_for_those_who_wait() {
        let bucket = Arc::new(Bucket::new(0.001));
        bucket.take().await;
        let begun = Instant::now();
        let waiter = tokio::spawn({
            let bucket = Arc::clone(&bucket);
            async move { bucket.take().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        bucket.set_rate(2.0);
        waiter.await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_goes_away_costs_nobody_a_turn() {
        let bucket = Bucket::new(1.0);
        bucket.take().await;
        let begun = Instant::now();
        for _ in 0..5 {
            assert!(tokio::time::timeout(Duration::from_millis(10), bucket.take()).await.is_err());
        }
        bucket.take().await;
        assert!(begun.elapsed() < Duration::from_millis(1_100), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_holds_everybody_back_even_without_a_limit() {
        let bucket = Bucket::new(0.0);
        bucket.rest(Duration::from_secs(3));
        let begun = Instant::now();
        bucket.take().await;
        assert!(begun.elapsed() >= Duration::from_secs(3));
        bucket.take().await;
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_saves_no_turns_up() {
        let bucket = Bucket::new(10.0);
        bucket.take().await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let begun = Instant::now();
        for _ in 0..11 {
            bucket.take().await;
        }
        assert!(begun.elapsed() >= Duration::from_millis(980), "{:?}", begun.elapsed());
    }

    #[test]
    fn what_is_no_rate_is_no_limit() {
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(interval(odd), Duration::ZERO);
        }
        assert_eq!(interval(25.0), Duration::from_millis(40));
        assert_eq!(interval(f64::MIN_POSITIVE), Duration::from_hours(1));
    }
}
