//! The running tasks of a role, by feed, and how many more pages a worker may start.
//!
//! A task that waits for a slow feed uses no processor and no connection, so it does not count against the width of its
//! role. Without that rule a single page that hangs would occupy a worker whose width is one, and with it every other
//! feed.

use super::circuit::FeedWait;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::{Id, JoinError, JoinSet};

/// Limit of running tasks of one role, however many feeds are slow.
const RUNNING_MAX: usize = 256;

/// The running tasks of one role, each for one feed.
pub(super) struct FeedTasks<T> {
    tasks: JoinSet<T>,
    slots: HashMap<Id, Slot>,
}

struct Slot {
    feed: String,
    wait: Arc<FeedWait>,
}

/// The number of pages that may be started, and the feeds that may start none of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) pages: usize,
    pub(super) full_feeds: Vec<String>,
}

impl<T: Send + 'static> FeedTasks<T> {
    pub(super) fn new() -> Self {
        Self { tasks: JoinSet::new(), slots: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Tasks that do not wait for a slow feed.
    pub(super) fn quick(&self) -> usize {
        self.slots.values().filter(|slot| !slot.wait.is_slow()).count()
    }

    /// The feeds of all tasks.
    pub(super) fn feeds(&self) -> Vec<String> {
        self.slots.values().map(|slot| slot.feed.clone()).collect()
    }

    /// Whether a role that works on one feed at a time may start another task: all running ones wait for slow feeds.
    pub(super) fn has_room(&self) -> bool {
        self.quick() == 0 && self.slots.len() < RUNNING_MAX
    }

    /// Decides how many pages a worker of this width may start.
    pub(super) fn room(&self, wanted: usize, pages_max: usize) -> Room {
        let held = self.slots.values().map(|slot| (slot.feed.as_str(), slot.wait.is_slow()));
        room(held, wanted, pages_max)
    }

    pub(super) fn start(
        &mut self,
        feed: String,
        wait: Arc<FeedWait>,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.slots.insert(id, Slot { feed, wait });
    }

    /// The outcome of a task that has ended, if there is one.
    pub(super) fn try_next(&mut self) -> Option<Result<T, JoinError>> {
        self.tasks.try_join_next_with_id().map(|done| self.ended(done))
    }

    /// Waits for the next task to end; `None` if there is no task.
    pub(super) async fn next(&mut self) -> Option<Result<T, JoinError>> {
        self.tasks.join_next_with_id().await.map(|done| self.ended(done))
    }

    pub(super) async fn abort(&mut self) {
        self.tasks.shutdown().await;
        self.slots.clear();
    }

    fn ended(&mut self, done: Result<(Id, T), JoinError>) -> Result<T, JoinError> {
        let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        self.slots.remove(&id);
        done.map(|(_, outcome)| outcome)
    }
}

/// Decides how many pages may be started in addition to the running ones, each given as its feed and whether it is
/// slow.
///
/// Pages of quick feeds fill the width; pages that wait for a slow feed do not count. One feed has at most `pages_max`
/// running pages. Pages beyond the first of each feed are also limited over all feeds, so that slow feeds leave room.
/// A feed without a running page can always start one.
fn room<'a>(held: impl Iterator<Item = (&'a str, bool)>, wanted: usize, pages_max: usize) -> Room {
    let (mut by_feed, mut quick, mut running) = (HashMap::<&str, usize>::new(), 0, 0);
    for (feed, is_slow) in held {
        *by_feed.entry(feed).or_default() += 1;
        quick += usize::from(!is_slow);
        running += 1;
    }
    let is_crowded = running - by_feed.len() >= 2 * pages_max;
    let is_full = |pages: usize| is_crowded || pages >= pages_max;
    let most = by_feed.values().copied().filter(|&pages| !is_full(pages)).max().unwrap_or(0);
    let mut full_feeds: Vec<String> =
        by_feed.iter().filter(|&(_, &pages)| is_full(pages)).map(|(feed, _)| (*feed).to_owned()).collect();
    full_feeds.sort_unstable();
    let pages = wanted
        .saturating_sub(quick)
        .min(pages_max.saturating_sub(most))
        .min(RUNNING_MAX.saturating_sub(running));
    Room { pages, full_feeds }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(feeds: &[(&'static str, usize, bool)]) -> Vec<(&'static str, bool)> {
        let repeat = |&(feed, pages, is_slow): &(&'static str, usize, bool)| {
            std::iter::repeat_n((feed, is_slow), pages)
        };
        feeds.iter().flat_map(repeat).collect()
    }

    #[test]
    fn room_excludes_slow_pages_and_full_feeds() {
        const QUICK: bool = false;
        const SLOW: bool = true;
        // The running pages, the width, and the expected number of pages and full feeds.
        type Case =
            (&'static str, &'static [(&'static str, usize, bool)], usize, usize, &'static [&'static str]);
        let cases: &[Case] = &[
            ("an idle worker", &[], 1, 1, &[]),
            ("a worker at its width", &[("a", 1, QUICK)], 1, 0, &[]),
            ("one hanging page", &[("a", 1, SLOW)], 1, 1, &[]),
            ("a slow feed alone may use every page", &[("a", 7, SLOW)], 8, 1, &[]),
            ("and no more than that", &[("a", 8, SLOW)], 8, 8, &["a"]),
            ("a quick feed beside a slow one", &[("a", 8, SLOW), ("b", 3, QUICK)], 8, 5, &["a"]),
            ("three slow feeds", &[("a", 8, SLOW), ("b", 8, SLOW), ("c", 8, SLOW)], 2, 2, &["a", "b", "c"]),
            (
                "crowded by feeds that are not full",
                &[("a", 6, SLOW), ("b", 7, SLOW), ("c", 6, SLOW)],
                1,
                1,
                &["a", "b", "c"],
            ),
        ];
        for &(name, pages, wanted, expected, full_feeds) in cases {
            let found = room(held(pages).into_iter(), wanted, 8);
            let full_feeds = full_feeds.iter().map(|&feed| feed.to_owned()).collect();
            assert_eq!(found, Room { pages: expected, full_feeds }, "{name}");
        }
    }

    #[test]
    fn room_is_bounded_over_all_feeds() {
        let names: Vec<String> = (0..RUNNING_MAX).map(|number| format!("feed-{number}")).collect();
        let found = room(names.iter().map(|name| (name.as_str(), true)), 8, 8);
        assert_eq!(found.pages, 0);
    }
}
