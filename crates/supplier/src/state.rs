//! Shared state of the supplier: tokens, counts, pages and lookups, with the configured misbehaviour.

use crate::behaviour::{Behaviour, take};
use crate::catalogue::{Catalogue, Slice};
use crate::changes::{Change, ChangeOutcome, Churn};
use crate::clock::Clock;
use crate::config::Config;
use crate::filter::{Query, word};
use crate::graphql::{self, PlanCache};
use crate::listing::listed;
use crate::lock;
use crate::random::{RandomSequence, below};
use crate::rest;
use crate::stats::Counters;
use crate::stone::Stone;
use crate::template::Template;
use async_graphql_value::ConstValue as Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_core::digest::sha256_hex;
use tokio::sync::Notify;

/// Maximum number of stones per page.
pub const MAX_LIMIT: usize = 50;

/// Error message for an invalid or expired token.
pub(crate) const INVALID_TOKEN: &str = "Unauthorized: the token is invalid or has expired";

/// State that all requests share.
pub(crate) struct SupplierState {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) catalogue: Mutex<Catalogue>,
    pub(crate) plans: PlanCache<graphql::Plan>,
    /// The standard selection, for the truth.
    pub(crate) standard: Template,
    pub(crate) rest_plans: PlanCache<rest::Plan>,
    /// All fields of an item of the REST API.
    pub(crate) rest_item: Template,
    /// Notified when the churn changes.
    pub(crate) churn_changed: Notify,
    churn: Mutex<(Churn, RandomSequence)>,
    /// Determines the length of short pages and the jitter.
    random: Mutex<RandomSequence>,
    /// Tokens of an earlier generation are invalid.
    generation: AtomicU64,
}

/// Arguments of a page.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    query: Query,
    slice: Slice,
}

impl PageRequest {
    /// Parses the arguments of a page; `null` is a missing argument.
    pub(crate) fn read(
        query: &Value,
        offset: &Value,
        limit: &Value,
        order: &Value,
        seed: u64,
    ) -> Result<Self, String> {
        let limit = integer("limit", limit)?.unwrap_or(MAX_LIMIT as u64);
        if limit > MAX_LIMIT as u64 {
            return Err(format!("limit must be at most {MAX_LIMIT}, not {limit}"));
        }
        let slice = Slice {
            offset: integer("offset", offset)?.unwrap_or(0),
            limit: usize::try_from(limit).unwrap_or(MAX_LIMIT),
            is_descending: is_descending(order)?,
        };
        Ok(Self { query: Query::read(query, seed)?, slice })
    }
}

fn integer(name: &str, value: &Value) -> Result<Option<u64>, String> {
    if matches!(value, Value::Null) {
        return Ok(None);
    }
    let number = if let Value::Number(number) = value { number.as_u64() } else { None };
    number.map(Some).ok_or_else(|| format!("{name} must be a non-negative integer, not {value}"))
}

fn is_descending(order: &Value) -> Result<bool, String> {
    if matches!(order, Value::Null) {
        return Ok(false);
    }
    let Value::Object(fields) = order else { return Err(format!("order must be an object, not {order}")) };
    let mut descending = false;
    for (name, value) in fields {
        if matches!(value, Value::Null) {
            continue;
        }
        let word = word(value).ok_or_else(|| format!("invalid value `{value}` in order"))?;
        match (name.as_str(), word) {
            ("type", "createdAt" | "insert" | "none") | ("direction", "ASC") => {}
            ("direction", "DESC") => descending = true,
            ("type", other) => return Err(format!("this stand-in does not order by {other}")),
            _ => return Err(format!("invalid order: {name} {word}")),
        }
    }
    Ok(descending)
}

impl SupplierState {
    pub(crate) fn new(config: Config, standard: Template) -> Self {
        let churn = config.churn.clone();
        Self {
            clock: Clock::default(),
            counters: Counters::default(),
            behaviour: Mutex::new(config.behaviour.clone()),
            catalogue: Mutex::new(Catalogue::new(&config)),
            plans: PlanCache::default(),
            standard,
            rest_plans: PlanCache::default(),
            rest_item: Template::complete(&rest::ITEM),
            churn_changed: Notify::new(),
            random: Mutex::new(RandomSequence::new(config.seed ^ 0x6465_736b)),
            churn: Mutex::new((churn.clone(), RandomSequence::new(churn.seed))),
            generation: AtomicU64::new(0),
            config,
        }
    }

    /// Issues a token for an account.
    pub(crate) fn login(&self, username: &str, password: &str) -> Result<String, String> {
        if self.config.account.as_ref().is_some_and(|a| a.username != username || a.password != password) {
            return Err("Unauthorized: invalid username or password".to_owned());
        }
        self.counters.logins.add(1);
        let generation = self.generation.load(Ordering::SeqCst);
        let issued = self.clock.now().timestamp_micros();
        Ok(format!("{generation}.{issued}.{}", self.seal(generation, issued)))
    }

    /// Whether a token is valid.
    pub(crate) fn accepts(&self, token: &str) -> bool {
        let mut parts = token.splitn(3, '.');
        let generation = parts.next().and_then(|part| part.parse().ok());
        let issued: Option<i64> = parts.next().and_then(|part| part.parse().ok());
        let (Some(generation), Some(issued), Some(seal)) = (generation, issued, parts.next()) else {
            return false;
        };
        let lifetime = lock(&self.behaviour).token_lifetime_secs;
        // Setting the clock back does not invalidate tokens.
        let age = self.clock.now().timestamp_micros().saturating_sub(issued).max(0);
        generation == self.generation.load(Ordering::SeqCst)
            && u64::try_from(age).is_ok_and(|age| age < lifetime.saturating_mul(1_000_000))
            && self.seal(generation, issued) == seal
    }

    /// Invalidates all issued tokens.
    pub(crate) fn expire_tokens(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn seal(&self, generation: u64, issued: i64) -> String {
        sha256_hex(format!("token {} {generation} {issued}", self.config.seed).as_bytes())
    }

    /// Counts the stones of a query, including the configured deviations.
    pub(crate) fn count(&self, query: &Query) -> u64 {
        self.counters.counts.add(1);
        let count = lock(&self.catalogue).count(query);
        let mut behaviour = lock(&self.behaviour);
        let doubles = if query.stones.is_some() { 0 } else { behaviour.second_listings(count) };
        let ahead = u64::from(take(&mut behaviour.count_ahead_next));
        (count + doubles + ahead).saturating_add_signed(behaviour.count_lies_by)
    }

    /// Returns the stones of a page, including the configured deviations.
    pub(crate) fn page(&self, request: &PageRequest) -> Vec<Stone> {
        let deviations = self.page_deviations();
        let mut slice = request.slice;
        if deviations.repeats_start {
            slice.offset = 0;
        }
        slice.limit = deviations.shortened(slice.limit);
        let behaviour = lock(&self.behaviour).clone();
        let mut stones = listed(&mut lock(&self.catalogue), &behaviour, &request.query, slice);
        self.finish_page(&deviations, &mut stones);
        stones
    }

    /// Returns the stone with the id, unless it was removed.
    pub(crate) fn lookup(&self, id: &str) -> Option<Stone> {
        self.counters.lookups.add(1);
        let number = crate::stone::number_of(self.config.seed, id)?;
        let stone = lock(&self.catalogue).stone(number)?;
        (stone.state.availability != crate::stone::Availability::Gone).then_some(stone)
    }

    /// Returns a random number below a bound.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { below(self.random(), bound) }
    }

    pub(crate) fn random(&self) -> u64 {
        lock(&self.random).next()
    }

    pub(crate) fn change(&self, change: &Change) -> Result<ChangeOutcome, String> {
        let changed = lock(&self.catalogue).change(change, self.clock.now())?;
        self.counters.changed.add(changed.ids.len() as u64);
        Ok(changed)
    }

    pub(crate) fn set_churn(&self, churn: Churn) {
        let random = RandomSequence::new(churn.seed);
        *lock(&self.churn) = (churn, random);
        self.churn_changed.notify_one();
    }

    pub(crate) fn churn_per_second(&self) -> u32 {
        lock(&self.churn).0.per_second
    }

    /// Applies the random changes after a page.
    pub(crate) fn apply_churn_of_page(&self) {
        let per_page = lock(&self.churn).0.per_page;
        self.apply_churn(per_page);
    }

    /// Applies a number of random changes.
    pub(crate) fn apply_churn(&self, count: u32) {
        if count == 0 {
            return;
        }
        let mut churn = lock(&self.churn);
        let (churn, random) = &mut *churn;
        let changed = lock(&self.catalogue).churn(churn, random, count, self.clock.now());
        self.counters.changed.add(changed as u64);
    }

    /// Changes the behaviour under its lock, so that no concurrent decrement of a counter is lost.
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
