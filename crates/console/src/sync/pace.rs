//! Panel with the number of records that a sync stored per interval.
//!
//! The API computes it from every page of the sync, and an open page requests it every second. So the result is cached
//! for a few seconds for all users.

use crate::chart::Columns;
use crate::time::rough;
use crate::widgets::count;
use chrono::TimeDelta;
use maud::{Markup, html};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_client::{Client, Error};
use tidemill_core::pace::Pace;
use tokio::time::Instant;
use uuid::Uuid;

/// Time for which a result is cached.
const CACHE_TIME: Duration = Duration::from_secs(3);
/// Maximum number of cached syncs.
const SYNCS_MAX: usize = 64;

/// Cached results by sync.
#[derive(Default)]
pub(crate) struct PaceCache {
    entries: Mutex<HashMap<Uuid, (Instant, Pace)>>,
}

impl PaceCache {
    /// Returns the pace of a sync that the client may see.
    pub(crate) async fn get(&self, client: &Client, sync: Uuid) -> Result<Pace, Error> {
        let known = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(&sync).cloned();
        if let Some((at, pace)) = known
            && at.elapsed() < CACHE_TIME
        {
            return Ok(pace);
        }
        let pace = client.pace(&sync.to_string()).await?;
        self.insert(sync, pace.clone());
        Ok(pace)
    }

    fn insert(&self, sync: Uuid, pace: Pace) {
        let mut all = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SYNCS_MAX && !all.contains_key(&sync) {
            all.clear();
        }
        all.insert(sync, (Instant::now(), pace));
    }
}

/// Renders the panel; nothing if no page was stored.
pub(super) fn panel(pace: &Pace) -> Markup {
    let secs = pace.interval_secs.max(1);
    let Some(most) = pace.stored.iter().max() else { return html! {} };
    let every = if secs == 1 { "second".to_owned() } else { rough(TimeDelta::seconds(secs)) };
    let after = |index: usize| match i64::try_from(index).unwrap_or(0) * secs {
        0 => "start".to_owned(),
        secs => format!("+{}", rough(TimeDelta::seconds(secs))),
    };
    let items = pace.stored.iter().enumerate().map(|(index, stored)| (after(index), *stored));
    let picture = Columns { title: format!("Records stored per {every}"), items: items.collect() };
    html! {
        section.panel #pace {
            header { h2 { "Records per second" } span.dim.small { "stored per " (every) "; at most "
                (count((most + secs - 1) / secs)) " per second" } }
            div.in.picture { (picture.draw()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_times_and_counts_in_its_text_alternative() {
        let pace = Pace { from: None, interval_secs: 5, stored: vec![50, 0, 101] };
        let drawn = panel(&pace).into_string();
        assert!(drawn.contains("<title>Records stored per 5 s</title>"), "{drawn}");
        assert!(drawn.contains("<desc>start: 50, +5 s: 0, +10 s: 101</desc>"), "{drawn}");
        assert!(drawn.contains("at most 21 per second"), "{drawn}");
        assert_eq!(panel(&Pace::default()).into_string(), "");
    }

    #[test]
    fn cache_of_many_syncs_is_bounded() {
        let cache = PaceCache::default();
        for _ in 0..SYNCS_MAX * 3 {
            cache.insert(Uuid::new_v4(), Pace::default());
            assert!(cache.entries.lock().unwrap().len() <= SYNCS_MAX);
        }
    }
}
