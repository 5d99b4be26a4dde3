//! How fast a sync goes, as a picture: what it stored, interval by interval.
//!
//! The numbers are counted from every page of a sync. A page that is looked at asks for them every second, so that they
//! are kept for a moment, for everybody who looks.

use crate::picture::Columns;
use crate::time::rough;
use crate::words::count;
use chrono::TimeDelta;
use maud::{Markup, html};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_client::{Client, Error};
use tidemill_core::pace::Pace;
use tokio::time::Instant;
use uuid::Uuid;

/// How old the numbers may be before they are counted again.
const FRESH: Duration = Duration::from_secs(3);
/// Syncs whose numbers are kept.
const SYNCS_MAX: usize = 64;

/// The numbers by sync.
#[derive(Default)]
pub(crate) struct Paces {
    kept: Mutex<HashMap<Uuid, (Instant, Pace)>>,
}

impl Paces {
    /// The pace of a sync that the caller of `client` sees.
    pub(crate) async fn of(&self, client: &Client, sync: Uuid) -> Result<Pace, Error> {
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&sync).cloned();
        if let Some((at, pace)) = known
            && at.elapsed() < FRESH
        {
            return Ok(pace);
        }
        let pace = client.pace(&sync.to_string()).await?;
        self.keep(sync, pace.clone());
        Ok(pace)
    }

    fn keep(&self, sync: Uuid, pace: Pace) {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SYNCS_MAX && !all.contains_key(&sync) {
            all.clear();
        }
        all.insert(sync, (Instant::now(), pace));
    }
}

/// The panel; nothing where no page was stored.
pub(super) fn panel(pace: &Pace) -> Markup {
    let secs = pace.interval_secs.max(1);
    let Some(most) = pace.stored.iter().max() else { return html! {} };
    let every = if secs == 1 { "second".to_owned() } else { rough(TimeDelta::seconds(secs)) };
    let after = |place: usize| match i64::try_from(place).unwrap_or(0) * secs {
        0 => "start".to_owned(),
        secs => format!("+{}", rough(TimeDelta::seconds(secs))),
    };
    let items = pace.stored.iter().enumerate().map(|(place, stored)| (after(place), *stored));
    let picture = Columns { title: format!("Stones stored in each {every}"), items: items.collect() };
    html! {
        section.panel #pace {
            header { h2 { "Stones per second" } span.dim.small { "stored in each " (every) "; at most "
                (count((most + secs - 1) / secs)) " per second" } }
            div.in.picture { (picture.draw()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_says_when_and_how_much_in_words_too() {
        let pace = Pace { from: None, interval_secs: 5, stored: vec![50, 0, 101] };
        let drawn = panel(&pace).into_string();
        assert!(drawn.contains("<title>Stones stored in each 5 s</title>"), "{drawn}");
        assert!(drawn.contains("<desc>start: 50, +5 s: 0, +10 s: 101</desc>"), "{drawn}");
        assert!(drawn.contains("at most 21 per second"), "{drawn}");
        assert_eq!(panel(&Pace::default()).into_string(), "");
    }

    #[test]
    fn the_numbers_of_many_syncs_take_a_bounded_place() {
        let paces = Paces::default();
        for _ in 0..SYNCS_MAX * 3 {
            paces.keep(Uuid::new_v4(), Pace::default());
            assert!(paces.kept.lock().unwrap().len() <= SYNCS_MAX);
        }
    }
}
