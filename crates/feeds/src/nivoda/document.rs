//! GraphQL documents and their variables.
//!
//! A document is a constant, so that the server can cache its parsed form. The token, the filters and the offset are
//! variables.

use crate::http::client::RequestError;
use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::diamond::Cents;
use tidemill_core::feed::{FeedQuery, FieldRange};

/// The source's price filter rounds down to whole dollars.
pub(super) const GRANULARITY: Cents = 100;
/// Maximum number of records that the source returns at once.
pub(super) const PAGE_MAX: u32 = 50;

pub(super) const LOGIN: &str = "query Login($username: String!, $password: String!) { authenticate { \
    username_and_password(username: $username, password: $password) { token } } }";

pub(super) const COUNT: &str = "query Count($token: String!, $query: DiamondQuery!) { as(token: $token) { \
    diamonds_by_query_count(query: $query) } }";

/// `total_count` is not requested: it is the length of the page, not of the list.
pub(super) const PAGE: &str = "query Page(\
    $token: String!, $query: DiamondQuery!, $offset: Int!, $limit: Int!) { as(token: $token) { \
    diamonds_by_query(query: $query, offset: $offset, limit: $limit, \
    order: { type: createdAt, direction: ASC }) { items { \
    id price discount diamond { id availability HoldId NivodaStockId supplierStockId image video eyeClean \
    brown green milky mine_of_origin delivery_time { min_business_days max_business_days } \
    certificate { id lab certNumber pdfUrl shape carats clarity cut polish symmetry color length width depth \
    depthPercentage table crownAngle crownHeight pavAngle pavDepth floInt floCol girdle culetSize f_color \
    f_intensity f_overtone labgrown treated product_images { id url display_index } } \
    supplier { id name legal_name } } } } } }";

/// A request: a GraphQL document and its variables.
#[derive(Serialize)]
pub(super) struct Request<V> {
    pub(super) query: &'static str,
    pub(super) variables: V,
}

#[derive(Serialize)]
pub(super) struct LoginVariables<'a> {
    pub(super) username: &'a str,
    pub(super) password: &'a str,
}

#[derive(Serialize)]
pub(super) struct CountVariables<'a> {
    pub(super) token: &'a str,
    pub(super) query: &'a Filter<'a>,
}

#[derive(Serialize)]
pub(super) struct PageVariables<'a> {
    pub(super) token: &'a str,
    pub(super) query: &'a Filter<'a>,
    pub(super) offset: u64,
    pub(super) limit: u32,
}

/// Filters that every request of this feed uses, with the source's names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a filter of the source, by its name")]
pub(super) struct Settings {
    shapes: Vec<String>,
    sizes: Sizes,
    has_image: bool,
    has_v360: bool,
    availability: Vec<String>,
    /// Availability values of stones that are no longer offered. Incremental syncs query for them. This is not a
    /// filter of the source.
    #[serde(skip_serializing)]
    withdrawn: Vec<String>,
    #[serde(rename = "excludeFairPoorCuts")]
    exclude_fair_poor_cuts: bool,
    hide_memo: bool,
    /// Whether stones are laboratory-grown; `None` selects both kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) labgrown: Option<bool>,
}

/// Range of weights in carats, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    from: f64,
    to: f64,
}

const SHAPES: [&str; 17] = [
    "ROUND",
    "OVAL",
    "EMERALD",
    "CUSHION",
    "CUSHION B",
    "CUSHION MODIFIED",
    "CUSHION BRILLIANT",
    "ASSCHER",
    "RADIANT",
    "MARQUISE",
    "PEAR",
    "PRINCESS",
    "ROSE",
    "OLD MINER",
    "TRILLIANT",
    "HEXAGONAL",
    "HEART",
];

impl Default for Settings {
    fn default() -> Self {
        Self {
            shapes: SHAPES.map(str::to_owned).to_vec(),
            sizes: Sizes { from: 0.4, to: 15.01 },
            has_image: true,
            has_v360: true,
            availability: vec!["AVAILABLE".to_owned()],
            withdrawn: vec!["ON_HOLD".to_owned(), "SOLD".to_owned()],
            exclude_fair_poor_cuts: true,
            hide_memo: true,
            labgrown: None,
        }
    }
}

impl Settings {
    /// Parses the settings of a feed; missing ones have their default.
    pub(super) fn read(settings: &tidemill_core::Json) -> Result<Self, String> {
        if settings.is_null() {
            return Ok(Self::default());
        }
        let settings = Self::deserialize(settings).map_err(|error| error.to_string())?;
        let Sizes { from, to } = settings.sizes;
        if !(0.0 <= from && from < to) {
            return Err(format!(
                "`sizes` ranges from {from} to {to}; `from` must be at least 0 and less than `to`"
            ));
        }
        if settings.shapes.is_empty() {
            return Err("`shapes` is empty; list at least one shape or omit it".to_owned());
        }
        Ok(settings)
    }

    /// Returns the settings that select withdrawn stones; `None` if no availability value is left for them.
    pub(super) fn of_withdrawn(&self) -> Option<Self> {
        let availability: Vec<String> =
            self.withdrawn.iter().filter(|word| !self.availability.contains(word)).cloned().collect();
        (!availability.is_empty()).then(|| Self { availability, ..self.clone() })
    }
}

/// Filters of one request.
#[derive(Debug, Serialize)]
pub(super) struct Filter<'a> {
    #[serde(flatten)]
    base: &'a Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    dollar_value: Option<Dollars>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<Updated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<&'a [String]>,
}

/// Price range in whole dollars, both ends included. A price of 10.99 counts as 10.
#[derive(Debug, Serialize)]
struct Dollars {
    from: i64,
    to: i64,
}

#[derive(Debug, Serialize)]
struct Updated {
    from: String,
}

impl Updated {
    /// Truncates to milliseconds, which may select more records but never fewer.
    fn since(from: Timestamp) -> Self {
        Self { from: from.to_rfc3339_opts(chrono::SecondsFormat::Millis, true) }
    }
}

impl<'a> Filter<'a> {
    /// Filters of a query, the same for counting and paging.
    pub(super) fn of(base: &'a Settings, query: &FeedQuery) -> Result<Self, RequestError> {
        let updated = query.updated_from.map(Updated::since);
        Ok(Self { base, dollar_value: Some(dollars(query.range)?), updated, ids: None })
    }

    /// Filters that select stones withdrawn since `since`.
    pub(super) fn of_withdrawn(base: &'a Settings, since: Timestamp) -> Self {
        Self { base, dollar_value: None, updated: Some(Updated::since(since)), ids: None }
    }

    /// Filters that select these stones if they are still offered.
    pub(super) const fn of_ids(base: &'a Settings, ids: &'a [String]) -> Self {
        Self { base, dollar_value: None, updated: None, ids: Some(ids) }
    }
}

/// Converts a half-open range in cents to a closed range in dollars. An inverted range is an error here, because the
/// source would answer it with arbitrary stones.
fn dollars(prices: FieldRange) -> Result<Dollars, RequestError> {
    let FieldRange { from, to } = prices;
    if from < 0 || from >= to {
        return Err(RequestError::query(format!(
            "the price range from {from} to {to} cents is empty or negative"
        )));
    }
    if from % GRANULARITY != 0 || to % GRANULARITY != 0 {
        return Err(RequestError::query(format!(
            "the price range from {from} to {to} cents does not consist of whole dollars"
        )));
    }
    let (from, to) = (from / GRANULARITY, to / GRANULARITY - 1);
    if i32::try_from(to).is_err() {
        return Err(RequestError::query(format!("{to} dollars do not fit the feed's 32-bit price filter")));
    }
    Ok(Dollars { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn query(from: Cents, to: Cents) -> FeedQuery {
        FeedQuery { range: FieldRange { from, to }, updated_from: None }
    }

    fn sent(settings: &tidemill_core::Json, query: &FeedQuery) -> tidemill_core::Json {
        let settings = Settings::read(settings).unwrap();
        serde_json::to_value(Filter::of(&settings, query).unwrap()).unwrap()
    }

    #[test]
    fn default_filters_match_the_seed_pipeline() {
        let mut query = query(10_000, 25_000);
        query.updated_from = Some("2026-02-03T04:05:06.789999Z".parse().unwrap());
        let expected = json!({
            "shapes": SHAPES,
            "sizes": { "from": 0.4, "to": 15.01 },
            "has_image": true,
            "has_v360": true,
            "availability": ["AVAILABLE"],
            "excludeFairPoorCuts": true,
            "hide_memo": true,
            "dollar_value": { "from": 100, "to": 249 },
            "updated": { "from": "2026-02-03T04:05:06.789Z" },
        });
        assert_eq!(sent(&json!(null), &query), expected);
        assert_eq!(sent(&json!({}), &query), expected);
    }

    #[test]
    fn settings_change_the_filters() {
        let settings = json!({ "labgrown": true, "sizes": { "from": 1.0, "to": 2.0 }, "shapes": ["PEAR"] });
        let sent = sent(&settings, &query(0, 100));
        assert_eq!((&sent["labgrown"], &sent["shapes"]), (&json!(true), &json!(["PEAR"])));
        assert_eq!(
            (&sent["sizes"]["to"], &sent["dollar_value"]),
            (&json!(2.0), &json!({ "from": 0, "to": 0 }))
        );
    }

    #[test]
    fn withdrawn_filter_differs_only_in_availability() {
        let since = "2026-02-03T04:05:06.789999Z".parse().unwrap();
        let sent = |settings: &tidemill_core::Json| {
            let withdrawn = Settings::read(settings).unwrap().of_withdrawn()?;
            Some(serde_json::to_value(Filter::of_withdrawn(&withdrawn, since)).unwrap())
        };
        let expected = json!({
            "shapes": SHAPES,
            "sizes": { "from": 0.4, "to": 15.01 },
            "has_image": true,
            "has_v360": true,
            "availability": ["ON_HOLD", "SOLD"],
            "excludeFairPoorCuts": true,
            "hide_memo": true,
            "updated": { "from": "2026-02-03T04:05:06.789Z" },
        });
        assert_eq!(sent(&json!(null)), Some(expected));
        let offered = sent(&json!({ "availability": ["AVAILABLE", "ON_HOLD"] })).unwrap();
        assert_eq!(offered["availability"], json!(["SOLD"]), "this feed offers stones that are on hold");
        assert_eq!(sent(&json!({ "withdrawn": [] })), None);
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (settings, word) in [
            (json!({ "lab_grown": true }), "lab_grown"),
            (json!({ "sizes": { "from": 2.0, "to": 1.0 } }), "sizes"),
            (json!({ "shapes": [] }), "shapes"),
            (json!({ "labgrown": "yes" }), "boolean"),
            (json!(7), "7"),
        ] {
            let reason = Settings::read(&settings).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn adjacent_ranges_cover_every_price_once() {
        let (low, high) =
            (dollars(query(0, 50_000).range).unwrap(), dollars(query(50_000, 50_100).range).unwrap());
        assert_eq!((low.from, low.to, high.from, high.to), (0, 499, 500, 500));
        let all = dollars(tidemill_core::diamond::ALL_PRICES).unwrap();
        assert_eq!((all.from, all.to), (0, 99_999_999));
    }

    #[test]
    fn range_that_the_source_would_misread_is_not_sent() {
        for (from, to) in
            [(100, 100), (200, 100), (-100, 100), (50, 100), (100, 250), (0, i64::MAX / 100 * 100)]
        {
            assert!(dollars(FieldRange { from, to }).is_err(), "{from}..{to}");
        }
    }
}
