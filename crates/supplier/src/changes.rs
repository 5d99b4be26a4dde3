//! Changes of stones: requested ones and random ones (churn).

use crate::catalogue::Catalogue;
use crate::config::MAX_STONES;
use crate::random::{RandomSequence, Shuffle, below, draw};
use crate::stone::{Availability, State, Stone};
use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The payload changes, but not the price.
    Payload,
    Price,
    /// The pictures and videos change.
    Media,
    /// The stone is sold or removed, at random.
    Vanish,
    /// The stone is put on hold.
    Hold,
    /// The stone is sold: only queries by id, or for sold stones, find it.
    Sell,
    /// The stone is removed: no query finds it.
    Remove,
    /// The stone is available again.
    Return,
    /// A new stone is added at the end of the list.
    Add,
    /// A text of the stone gets a NUL character.
    Nul,
    /// The stone loses its certificate.
    NoCertificate,
    /// Undoes `Nul` and `NoCertificate`.
    #[serde(rename = "mend")]
    Repair,
}

/// A requested change. As JSON it is the body of `POST /admin/change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub what: ChangeKind,
    /// Number of stones, selected by the seed. Excludes `ids`.
    #[serde(default)]
    pub count: Option<u32>,
    /// Ids of the stones, or of the items of the REST API. Excludes `count`.
    #[serde(default)]
    pub ids: Option<Vec<String>>,
    /// Seed of all random selections.
    #[serde(default)]
    pub seed: u64,
    /// Time of the change; `None` is the current time.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// New price of a price change; `None` draws one from the distribution.
    #[serde(default)]
    pub price_cents: Option<u32>,
}

impl Change {
    /// A change of `count` stones that the seed selects.
    pub const fn random(what: ChangeKind, count: u32, seed: u64) -> Self {
        Self { what, count: Some(count), ids: None, seed, at: None, price_cents: None }
    }

    /// A change of the stones with the given ids.
    pub const fn of_ids(what: ChangeKind, ids: Vec<String>) -> Self {
        Self { what, count: None, ids: Some(ids), seed: 0, at: None, price_cents: None }
    }
}

/// Outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeOutcome {
    /// Time of the change.
    pub at: Timestamp,
    /// Ids of the changed stones.
    pub ids: Vec<String>,
}

/// Weights of the kinds of random changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeMix {
    pub payload: u32,
    pub price: u32,
    pub media: u32,
    pub vanish: u32,
    pub sell: u32,
    #[serde(rename = "return")]
    pub comes_back: u32,
    pub add: u32,
}

impl Default for ChangeMix {
    fn default() -> Self {
        Self { payload: 4, price: 3, media: 1, vanish: 2, sell: 0, comes_back: 1, add: 1 }
    }
}

/// Random changes of stones. As JSON it is the body of `POST /admin/churn`; `{}` stops them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Churn {
    pub per_second: u32,
    /// Number of changes after each served page.
    pub per_page: u32,
    pub mix: ChangeMix,
    pub seed: u64,
}

impl ChangeMix {
    fn pick(&self, number: u64) -> Option<ChangeKind> {
        let all = [
            (ChangeKind::Payload, self.payload),
            (ChangeKind::Price, self.price),
            (ChangeKind::Media, self.media),
            (ChangeKind::Vanish, self.vanish),
            (ChangeKind::Sell, self.sell),
            (ChangeKind::Return, self.comes_back),
            (ChangeKind::Add, self.add),
        ];
        let sum: u64 = all.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut ticket = below(number, sum);
        all.into_iter().find_map(|(what, weight)| {
            let hit = ticket < u64::from(weight);
            ticket = ticket.saturating_sub(u64::from(weight));
            hit.then_some(what)
        })
    }
}

impl Catalogue {
    /// Applies a change; `now` is its time unless the change has one.
    pub(crate) fn change(&mut self, change: &Change, now: Timestamp) -> Result<ChangeOutcome, String> {
        let at = change.at.unwrap_or(now);
        let stones = match (change.what, change.count, &change.ids) {
            (ChangeKind::Add, Some(count), None) => {
                if count > (2 * MAX_STONES).saturating_sub(self.len()) {
                    return Err(format!("the catalogue would have more than {} stones", 2 * MAX_STONES));
                }
                (0..count).map(|_| self.add(at.timestamp_micros())).collect()
            }
            (ChangeKind::Add, ..) => return Err("`add` needs `count` and no `ids`".to_owned()),
            (_, Some(count), None) => self.select(change.what, count, change.seed),
            (_, None, Some(ids)) => self.find_ids(ids)?,
            _ => return Err("either `count` or `ids` is required".to_owned()),
        };
        if change.what != ChangeKind::Add {
            for number in &stones {
                self.apply(*number, change, at.timestamp_micros());
            }
        }
        let ids = stones.iter().map(|number| self.id_of(*number)).collect();
        Ok(ChangeOutcome { at, ids })
    }

    /// Applies `count` random changes; returns the number of changed stones.
    pub(crate) fn churn(
        &mut self,
        churn: &Churn,
        random: &mut RandomSequence,
        count: u32,
        now: Timestamp,
    ) -> usize {
        let mut changed = 0;
        for _ in 0..count {
            let Some(what) = churn.mix.pick(random.next()) else { break };
            let change = Change::random(what, 1, random.next());
            // A change without a suitable stone, or beyond the maximum number of stones, is skipped.
            changed += self.change(&change, now).map_or(0, |changed| changed.ids.len());
        }
        changed
    }

    /// Selects stones to which the change applies.
    fn select(&self, what: ChangeKind, count: u32, seed: u64) -> Vec<u32> {
        let count = count as usize;
        if what == ChangeKind::Return {
            let start = Shuffle::new(self.len(), seed).next().unwrap_or(0);
            return self
                .absent
                .range(start..)
                .chain(self.absent.range(..start))
                .copied()
                .take(count)
                .collect();
        }
        let applies = |state: &State| {
            let is_damaged = state.has_nul || state.uncertified;
            if what == ChangeKind::Repair {
                is_damaged
            } else {
                state.availability == Availability::Available
            }
        };
        let numbers = Shuffle::new(self.len(), seed);
        numbers
            .filter(|number| self.state(*number).is_some_and(|state| applies(&state)))
            .take(count)
            .collect()
    }

    fn find_ids(&self, ids: &[String]) -> Result<Vec<u32>, String> {
        let find = |id: &String| {
            let number = crate::rest::number_of(id).or_else(|| crate::stone::number_of(self.seed(), id));
            let number = number.filter(|number| *number < self.len());
            number.ok_or_else(|| format!("unknown stone `{id}`"))
        };
        ids.iter().map(find).collect()
    }

    fn apply(&mut self, number: u32, change: &Change, at: i64) {
        let Some(mut state) = self.state(number) else { return };
        match change.what {
            ChangeKind::Payload | ChangeKind::Add => state.version = state.version.wrapping_add(1),
            ChangeKind::Price => {
                state.version = state.version.wrapping_add(1);
                state.price = change.price_cents.unwrap_or_else(|| self.next_price(number, &state));
            }
            ChangeKind::Media => state.media = state.media.wrapping_add(1),
            ChangeKind::Vanish => {
                let sold = draw(change.seed, number, u64::from(state.version)).is_multiple_of(2);
                state.availability = if sold { Availability::Sold } else { Availability::Gone };
            }
            ChangeKind::Hold => state.availability = Availability::OnHold,
            ChangeKind::Sell => state.availability = Availability::Sold,
            ChangeKind::Remove => state.availability = Availability::Gone,
            ChangeKind::Return => state.availability = Availability::Available,
            ChangeKind::Nul => state.has_nul = true,
            ChangeKind::NoCertificate => state.uncertified = true,
            ChangeKind::Repair => (state.has_nul, state.uncertified) = (false, false),
        }
        state.updated = at;
        self.set(number, state);
    }

    /// Draws a different price: with probability 1/2 close to the current one, otherwise from the distribution.
    fn next_price(&self, number: u32, state: &State) -> u32 {
        let stone = Stone::new(self.seed(), number, *state);
        let fresh = self.price(number, state.version);
        let near = u64::from(state.price) * (85 + stone.varying(9) % 31) / 100;
        let next =
            if stone.varying(10).is_multiple_of(2) { u32::try_from(near).unwrap_or(fresh) } else { fresh };
        if next == state.price { state.price.saturating_add(100) } else { next.max(1) }
    }
}
