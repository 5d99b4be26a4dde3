//! A feed: an outside source of stones, what can be asked of it, and what it answers.

use crate::label::labelled;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::{Json, Timestamp};
use std::borrow::Cow;

/// A price, in cents. Money is never a floating-point number.
pub type Cents = i64;

/// No stone costs this much: the last partition of a feed ends here, so that none lies beyond it.
pub const PRICE_CEILING: Cents = 100_000_000 * 100;

/// Prices from `from` on, up to but without `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PriceRange {
    /// The lowest price in it.
    pub from: Cents,
    /// The lowest price above it.
    pub to: Cents,
}

impl PriceRange {
    /// Every price there can be.
    pub const ALL: Self = Self { from: 0, to: PRICE_CEILING };

    /// Whether a price lies in it.
    pub const fn contains(self, price: Cents) -> bool {
        self.from <= price && price < self.to
    }

    /// How many cents wide it is.
    pub const fn width(self) -> Cents {
        self.to - self.from
    }
}

/// What a count or a page asks for.
///
/// There is no upper end of the time: a stone that is updated while the feed is being read would leave the list and
/// shift the others past the reader.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedQuery {
    /// Only stones of these prices.
    pub prices: PriceRange,
    /// Only stones updated at this time or later; all of them without it.
    pub updated_from: Option<Timestamp>,
}

/// One record as the source gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The source's name for the stone: its identity within the feed.
    pub stone_id: String,
    /// The source's name for the offer.
    pub offer_id: Option<String>,
    /// The record itself: JSON text.
    pub payload: String,
    /// SHA-256 of the payload.
    pub payload_hash: [u8; 32],
}

impl Item {
    /// A record, with its hash.
    pub fn new(stone_id: impl Into<String>, offer_id: Option<String>, payload: String) -> Self {
        let payload_hash = crate::digest::sha256(payload.as_bytes());
        Self { stone_id: stone_id.into(), offer_id, payload, payload_hash }
    }
}

/// Something in a page that is not a record: kept with its reason, so that the page goes on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BadItem {
    /// Its name, where it has one.
    pub stone_id: Option<String>,
    /// Its place within its page, from 0.
    pub place: usize,
    /// What is wrong with it.
    pub reason: String,
    /// What was there: JSON text, cut to a bounded length.
    pub payload: String,
    /// SHA-256 of the whole text.
    pub digest: [u8; 32],
}

/// How the names begin that records without an id are kept under.
pub const NAMELESS: &str = "#no-id/";

impl BadItem {
    /// What is wrong with the record at a place of its page.
    pub fn new(stone_id: Option<String>, place: usize, reason: String, payload: &str) -> Self {
        let digest = crate::digest::sha256(payload.as_bytes());
        let payload = payload[..payload.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned();
        Self { stone_id, place, reason, payload, digest }
    }

    /// The name that it is kept under: its id, or one that follows from its text alone. So the same record has the same
    /// name in every pass and every sync.
    pub fn name(&self) -> Cow<'_, str> {
        if let Some(id) = &self.stone_id {
            return Cow::Borrowed(id);
        }
        let digits = self.digest[..16].iter().map(|byte| format!("{byte:02x}"));
        Cow::Owned(format!("{NAMELESS}{}", digits.collect::<String>()))
    }
}

/// One page of a feed, in the feed's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedPage {
    /// The records, in the feed's order, repeats included.
    pub items: Vec<Item>,
    /// What could not be read as a record.
    pub bad: Vec<BadItem>,
    /// Whether the feed itself says that nothing follows. A short page alone says nothing.
    pub is_last: bool,
}

impl FeedPage {
    /// Places of the list that the page shows: records, repeats and those that could not be read.
    pub fn places(&self) -> usize {
        self.items.len() + self.bad.len()
    }

    /// The records in the feed's order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let (mut items, mut bad) = (self.items.iter(), self.bad.iter().peekable());
        (0..self.places()).filter_map(move |place| {
            let is_bad = items.len() == 0 || bad.peek().is_some_and(|bad| bad.place <= place);
            if is_bad { bad.next().map(Record::Bad) } else { items.next().map(Record::Good) }
        })
    }

    /// The name at each place, in the feed's order.
    pub fn names(&self) -> Vec<Cow<'_, str>> {
        self.records().map(Record::name).collect()
    }
}

/// What stands at a place of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A record.
    Good(&'a Item),
    /// Something that could not be read as one.
    Bad(&'a BadItem),
}

impl<'a> Record<'a> {
    /// The name that it is kept under.
    pub fn name(self) -> Cow<'a, str> {
        match self {
            Self::Good(item) => Cow::Borrowed(&item.stone_id),
            Self::Bad(bad) => bad.name(),
        }
    }
}

labelled! {
    /// Whether a run reads the whole feed or what has changed.
    "run type" RunType {
        /// Everything.
        Full = "full",
        /// What was updated since the watermark.
        Incremental = "incremental",
    }
}

/// How far a feed is consolidated, in the source's time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Watermark {
    /// Everything updated before this time is in the table.
    pub last_updated_at: Timestamp,
    /// The sync that brought it here.
    pub last_run_id: Option<String>,
    /// When that sync was completed.
    pub last_run_completed_at: Option<Timestamp>,
}

/// A feed as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feed {
    /// Its name.
    pub feed: String,
    /// The project that its runs belong to.
    pub project_id: String,
    /// How it is spoken to: `nivoda`.
    pub kind: String,
    /// Where it is.
    pub endpoint: String,
    /// The account.
    pub username: Option<String>,
    /// The environment variable that holds the password. The password itself is never kept.
    pub password_env: Option<String>,
    /// Requests per second, over all workers.
    pub rate: u32,
    /// What else the kind understands.
    pub settings: Json,
    /// When it was added.
    pub created_at: Timestamp,
}
