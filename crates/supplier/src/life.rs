//! How stones change: by order, and by themselves.

use crate::config::MAX_STONES;
use crate::random::{Dice, Shuffle, below, draw};
use crate::stone::{Presence, State, Stone};
use crate::world::World;
use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;

/// What happens to a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Its payload changes, and its price does not.
    Payload,
    /// Its price changes.
    Price,
    /// Its pictures and films change.
    Media,
    /// It is sold or removed, as chance has it.
    Vanish,
    /// It is put aside for somebody.
    Hold,
    /// It is sold: only a lookup by id still finds it.
    Sell,
    /// It is removed: nothing finds it.
    Remove,
    /// It is for sale again.
    Return,
    /// A new stone is created, at the end of the list.
    Add,
    /// A text of it gets a NUL character.
    Nul,
    /// It loses its certificate.
    NoCertificate,
    /// What the last two did is undone.
    Mend,
}

/// An order to change stones. As JSON it is the body of `POST /admin/change`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What happens.
    pub what: What,
    /// To how many stones, chosen by the seed. Not together with `ids`.
    #[serde(default)]
    pub count: Option<u32>,
    /// To which stones.
    #[serde(default)]
    pub ids: Option<Vec<String>>,
    /// What decides where there is a choice.
    #[serde(default)]
    pub seed: u64,
    /// When; now without it.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// The new price where the price changes; another one of the distribution without it.
    #[serde(default)]
    pub price_cents: Option<u32>,
}

impl Change {
    /// An order for so many stones.
    pub const fn some(what: What, count: u32, seed: u64) -> Self {
        Self { what, count: Some(count), ids: None, seed, at: None, price_cents: None }
    }

    /// An order for these stones.
    pub const fn these(what: What, ids: Vec<String>) -> Self {
        Self { what, count: None, ids: Some(ids), seed: 0, at: None, price_cents: None }
    }
}

/// What an order did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// When, by the supplier's clock or by the order.
    pub at: Timestamp,
    /// The stones that are another now.
    pub ids: Vec<String>,
}

/// How often each thing happens, in proportion to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// The payload changes.
    pub payload: u32,
    /// The price changes.
    pub price: u32,
    /// The media change.
    pub media: u32,
    /// A stone vanishes.
    pub vanish: u32,
    /// A stone is sold.
    pub sell: u32,
    /// A stone comes back.
    #[serde(rename = "return")]
    pub comes_back: u32,
    /// A stone is new.
    pub add: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Self { payload: 4, price: 3, media: 1, vanish: 2, sell: 0, comes_back: 1, add: 1 }
    }
}

/// How stones change by themselves. As JSON it is the body of `POST /admin/churn`; `{}` stops it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Churn {
    /// How many changes there are per second.
    pub per_second: u32,
    /// How many changes follow each page that is answered.
    pub per_page: u32,
    /// What changes.
    pub mix: Mix,
    /// What decides which stones, and in which order.
    pub seed: u64,
}

impl Mix {
    fn pick(&self, number: u64) -> Option<What> {
        let all = [
            (What::Payload, self.payload),
            (What::Price, self.price),
            (What::Media, self.media),
            (What::Vanish, self.vanish),
            (What::Sell, self.sell),
            (What::Return, self.comes_back),
            (What::Add, self.add),
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

impl World {
    /// Carries an order out at `now`, which is the moment of the change unless the order names one.
    pub(crate) fn change(&mut self, order: &Change, now: Timestamp) -> Result<Changed, String> {
        let at = order.at.unwrap_or(now);
        let stones = match (order.what, order.count, &order.ids) {
            (What::Add, Some(count), None) => {
                if count > (2 * MAX_STONES).saturating_sub(self.len()) {
                    return Err(format!("there would be more than {} stones", 2 * MAX_STONES));
                }
                (0..count).map(|_| self.add(at.timestamp_micros())).collect()
            }
            (What::Add, ..) => return Err("new stones are asked for by `count`".to_owned()),
            (_, Some(count), None) => self.chosen(order.what, count, order.seed),
            (_, None, Some(ids)) => self.named(ids)?,
            _ => return Err("say which stones change: `count` or `ids`, and not both".to_owned()),
        };
        if order.what != What::Add {
            for number in &stones {
                self.alter(*number, order, at.timestamp_micros());
            }
        }
        let ids = stones.iter().map(|number| self.id_of(*number)).collect();
        Ok(Changed { at, ids })
    }

    /// Makes so many changes as the mix has them; says how many stones are another now.
    pub(crate) fn churn(&mut self, churn: &Churn, dice: &mut Dice, count: u32, now: Timestamp) -> usize {
        let mut changed = 0;
        for _ in 0..count {
            let Some(what) = churn.mix.pick(dice.roll()) else { break };
            let order = Change::some(what, 1, dice.roll());
            // There may be no stone that it can happen to, or no room for another one: then nothing happens.
            changed += self.change(&order, now).map_or(0, |changed| changed.ids.len());
        }
        changed
    }

    /// The stones that a seed chooses of those that it can happen to.
    fn chosen(&self, what: What, count: u32, seed: u64) -> Vec<u32> {
        let count = count as usize;
        if what == What::Return {
            let start = Shuffle::new(self.len(), seed).next().unwrap_or(0);
            return self
                .absent
                .range(start..)
                .chain(self.absent.range(..start))
                .copied()
                .take(count)
                .collect();
        }
        let fits = |state: &State| {
            let spoilt = state.has_nul || state.uncertified;
            if what == What::Mend { spoilt } else { state.presence == Presence::Available }
        };
        let numbers = Shuffle::new(self.len(), seed);
        numbers.filter(|number| self.state(*number).is_some_and(|state| fits(&state))).take(count).collect()
    }

    fn named(&self, ids: &[String]) -> Result<Vec<u32>, String> {
        let find = |id: &String| {
            let number = crate::stone::number_of(self.seed(), id).filter(|number| *number < self.len());
            number.ok_or_else(|| format!("there is no stone `{id}`"))
        };
        ids.iter().map(find).collect()
    }

    fn alter(&mut self, number: u32, order: &Change, at: i64) {
        let Some(mut state) = self.state(number) else { return };
        match order.what {
            What::Payload | What::Add => state.version = state.version.wrapping_add(1),
            What::Price => {
                state.version = state.version.wrapping_add(1);
                state.price = order.price_cents.unwrap_or_else(|| self.next_price(number, &state));
            }
            What::Media => state.media = state.media.wrapping_add(1),
            What::Vanish => {
                let sold = draw(order.seed, number, u64::from(state.version)).is_multiple_of(2);
                state.presence = if sold { Presence::Sold } else { Presence::Gone };
            }
            What::Hold => state.presence = Presence::OnHold,
            What::Sell => state.presence = Presence::Sold,
            What::Remove => state.presence = Presence::Gone,
            What::Return => state.presence = Presence::Available,
            What::Nul => state.has_nul = true,
            What::NoCertificate => state.uncertified = true,
            What::Mend => (state.has_nul, state.uncertified) = (false, false),
        }
        state.updated = at;
        self.set(number, state);
    }

    /// Another price: half of the time a little more or less, otherwise any price of the distribution.
    fn next_price(&self, number: u32, state: &State) -> u32 {
        let stone = Stone::new(self.seed(), number, *state);
        let fresh = self.price(number, state.version);
        let near = u64::from(state.price) * (85 + stone.varying(9) % 31) / 100;
        let next =
            if stone.varying(10).is_multiple_of(2) { u32::try_from(near).unwrap_or(fresh) } else { fresh };
        if next == state.price { state.price.saturating_add(100) } else { next.max(1) }
    }
}
