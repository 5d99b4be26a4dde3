//! The supplier's desk: accounts, counts and pages, with every misbehaviour that it was told.
//!
//! Both ways of answering a GraphQL request end here, so that they cannot differ in what they find.

use crate::behaviour::{Behaviour, take};
use crate::clock::Clock;
use crate::config::Config;
use crate::fast::Plans;
use crate::filter::{Query, word};
use crate::life::{Change, Changed, Churn};
use crate::lock;
use crate::random::{Dice, below};
use crate::stats::Counters;
use crate::stone::Stone;
use crate::template::Template;
use crate::world::{Slice, World};
use async_graphql::Value;
use async_graphql::dynamic::Schema;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_core::digest::sha256_hex;
use tokio::sync::Notify;

/// The most stones on a page.
pub const MAX_LIMIT: usize = 50;

/// What the supplier says to a token that is not valid, or not any more.
pub(crate) const BAD_TOKEN: &str = "Unauthorized: the token is invalid or has expired";

/// Everything that the requests share.
pub(crate) struct Desk {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) world: Mutex<World>,
    pub(crate) plans: Plans,
    pub(crate) schema: Schema,
    /// The pipeline's selection, for the truth.
    pub(crate) standard: Template,
    /// Raised when the churn changes.
    pub(crate) churn_set: Notify,
    churn: Mutex<(Churn, Dice)>,
    /// Decides the length of short pages and of waits.
    dice: Mutex<Dice>,
    /// Tokens of an earlier generation are not valid.
    generation: AtomicU64,
}

/// A page as it is asked for.
#[derive(Debug, Clone)]
pub(crate) struct PageAsk {
    query: Query,
    slice: Slice,
}

impl PageAsk {
    /// Reads the arguments of a page; `null` stands for what is not given.
    pub(crate) fn read(
        query: &Value,
        offset: &Value,
        limit: &Value,
        order: &Value,
        seed: u64,
    ) -> Result<Self, String> {
        let limit = whole("limit", limit)?.unwrap_or(MAX_LIMIT as u64);
        if limit > MAX_LIMIT as u64 {
            return Err(format!("limit must be at most {MAX_LIMIT}, not {limit}"));
        }
        let slice = Slice {
            offset: whole("offset", offset)?.unwrap_or(0),
            limit: usize::try_from(limit).unwrap_or(MAX_LIMIT),
            is_descending: is_descending(order)?,
        };
        Ok(Self { query: Query::read(query, seed)?, slice })
    }
}

fn whole(name: &str, value: &Value) -> Result<Option<u64>, String> {
    if matches!(value, Value::Null) {
        return Ok(None);
    }
    let number = if let Value::Number(number) = value { number.as_u64() } else { None };
    number.map(Some).ok_or_else(|| format!("{name} must be a whole number, not {value}"))
}

fn is_descending(order: &Value) -> Result<bool, String> {
    if matches!(order, Value::Null) {
        return Ok(false);
    }
    let Value::Object(fields) = order else { return Err(format!("an order is an object, not {order}")) };
    let mut descending = false;
    for (name, value) in fields {
        if matches!(value, Value::Null) {
            continue;
        }
        let word = word(value).ok_or_else(|| format!("`{value}` is no part of an order"))?;
        match (name.as_str(), word) {
            ("type", "createdAt" | "insert" | "none") | ("direction", "ASC") => {}
            ("direction", "DESC") => descending = true,
            ("type", other) => return Err(format!("this stand-in does not order by {other}")),
            _ => return Err(format!("an order has no {name} {word}")),
        }
    }
    Ok(descending)
}

impl Desk {
    /// Opens the desk.
    pub(crate) fn new(config: Config, schema: Schema, standard: Template) -> Self {
        let churn = config.churn.clone();
        Self {
            clock: Clock::default(),
            counters: Counters::default(),
            behaviour: Mutex::new(config.behaviour.clone()),
            world: Mutex::new(World::new(&config)),
            plans: Plans::default(),
            schema,
            standard,
            churn_set: Notify::new(),
            dice: Mutex::new(Dice::new(config.seed ^ 0x6465_736b)),
            churn: Mutex::new((churn.clone(), Dice::new(churn.seed))),
            generation: AtomicU64::new(0),
            config,
        }
    }

    /// Gives a token for an account.
    pub(crate) fn login(&self, username: &str, password: &str) -> Result<String, String> {
        if self.config.account.as_ref().is_some_and(|a| a.username != username || a.password != password) {
            return Err("Unauthorized: invalid username or password".to_owned());
        }
        self.counters.logins.add(1);
        let generation = self.generation.load(Ordering::SeqCst);
        let issued = self.clock.now().timestamp_micros();
        Ok(format!("{generation}.{issued}.{}", self.seal(generation, issued)))
    }

    /// Whether a token is valid now.
    pub(crate) fn accepts(&self, token: &str) -> bool {
        let mut parts = token.splitn(3, '.');
        let generation = parts.next().and_then(|part| part.parse().ok());
        let issued: Option<i64> = parts.next().and_then(|part| part.parse().ok());
        let (Some(generation), Some(issued), Some(seal)) = (generation, issued, parts.next()) else {
            return false;
        };
        let lifetime = lock(&self.behaviour).token_lifetime_secs;
        // A clock that was set back makes no token invalid.
        let age = self.clock.now().timestamp_micros().saturating_sub(issued).max(0);
        generation == self.generation.load(Ordering::SeqCst)
            && u64::try_from(age).is_ok_and(|age| age < lifetime.saturating_mul(1_000_000))
            && self.seal(generation, issued) == seal
    }

    /// Makes every token given so far invalid.
    pub(crate) fn expire_tokens(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn seal(&self, generation: u64, issued: i64) -> String {
        sha256_hex(format!("token {} {generation} {issued}", self.config.seed).as_bytes())
    }

    /// Answers a count.
    pub(crate) fn count(&self, query: &Query) -> u64 {
        self.counters.counts.add(1);
        let count = lock(&self.world).count(query);
        let mut behaviour = lock(&self.behaviour);
        let doubles = if query.stones.is_some() { &[][..] } else { &behaviour.doubles };
        let doubles = doubles.iter().filter(|double| double.of < count).count() as u64;
        let ahead = u64::from(take(&mut behaviour.count_ahead_next));
        (count + doubles + ahead).saturating_add_signed(behaviour.count_lies_by)
    }

    /// Answers a page.
    pub(crate) fn page(&self, ask: &PageAsk) -> Vec<Stone> {
        let mut slice = ask.slice;
        let (without_ids, duplicate) = {
            let mut behaviour = lock(&self.behaviour);
            if take(&mut behaviour.repeat_next) || behaviour.repeat_always {
                slice.offset = 0;
            }
            if take(&mut behaviour.short_next) || self.below(100) < u64::from(behaviour.short_percent) {
                let fewer = 1 + self.below((slice.limit as u64).saturating_sub(1));
                slice.limit = slice.limit.min(usize::try_from(fewer).unwrap_or(1));
            }
            (take(&mut behaviour.without_ids_next), take(&mut behaviour.duplicate_next))
        };
        let mut stones = self.listed(&ask.query, slice);
        for stone in &mut stones {
            stone.without_id |= without_ids;
        }
        if duplicate {
            stones.extend_from_within(..1.min(stones.len()));
        }
        self.counters.pages.add(1);
        self.counters.stones.add(stones.len() as u64);
        let per_page = lock(&self.churn).0.per_page;
        self.churn_some(per_page);
        stones
    }

    /// A part of a list, with what the behaviour does to its places.
    fn listed(&self, query: &Query, slice: Slice) -> Vec<Stone> {
        let behaviour = lock(&self.behaviour).clone();
        let mut world = lock(&self.world);
        let is_plain =
            behaviour.doubles.is_empty() && behaviour.nameless.is_empty() && behaviour.hidden.is_empty();
        let mut stones = Vec::new();
        if is_plain || query.stones.is_some() {
            stones = world.page(query, slice);
        } else {
            for place in slice.offset..slice.offset.saturating_add(slice.limit as u64) {
                let double = behaviour.doubles.iter().find(|double| double.at == place);
                let before = behaviour.doubles.iter().filter(|double| double.at < place).count() as u64;
                let offset = double.map_or(place - before, |double| double.of);
                let Some(mut stone) = world.page(query, Slice { offset, limit: 1, ..slice }).pop() else {
                    break;
                };
                stone.without_id = behaviour.nameless.contains(&place);
                if !behaviour.hidden.contains(&place) {
                    stones.push(stone);
                }
            }
        }
        drop(world);
        for stone in &mut stones {
            (stone.is_spaced, stone.padding) = (behaviour.spaced_ids, behaviour.padding_bytes);
        }
        stones
    }

    /// The stone of that id, unless it is gone.
    pub(crate) fn lookup(&self, id: &str) -> Option<Stone> {
        self.counters.lookups.add(1);
        let number = crate::stone::number_of(self.config.seed, id)?;
        let stone = lock(&self.world).stone(number)?;
        (stone.state.presence != crate::stone::Presence::Gone).then_some(stone)
    }

    /// A random number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { below(lock(&self.dice).roll(), bound) }
    }

    /// Changes stones by order.
    pub(crate) fn change(&self, order: &Change) -> Result<Changed, String> {
        let changed = lock(&self.world).change(order, self.clock.now())?;
        self.counters.changed.add(changed.ids.len() as u64);
        Ok(changed)
    }

    /// Sets how stones change by themselves.
    pub(crate) fn set_churn(&self, churn: Churn) {
        let dice = Dice::new(churn.seed);
        *lock(&self.churn) = (churn, dice);
        self.churn_set.notify_one();
    }

    /// How many changes there are per second.
    pub(crate) fn churn_per_second(&self) -> u32 {
        lock(&self.churn).0.per_second
    }

    /// Lets so many changes happen.
    pub(crate) fn churn_some(&self, count: u32) {
        if count == 0 {
            return;
        }
        let mut churn = lock(&self.churn);
        let (churn, dice) = &mut *churn;
        let changed = lock(&self.world).churn(churn, dice, count, self.clock.now());
        self.counters.changed.add(changed as u64);
    }

    /// Changes the behaviour, and does at once what it orders.
    ///
    /// It is one step, so that no request that is counted down meanwhile is forgotten.
    pub(crate) fn behave(
        &self,
        change: impl FnOnce(&mut Behaviour) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut behaviour = lock(&self.behaviour);
        change(&mut behaviour)?;
        if std::mem::take(&mut behaviour.expire_tokens) {
            self.expire_tokens();
        }
        Ok(())
    }
}
