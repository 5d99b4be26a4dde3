//! Confirmation of a recognised paginator: `feed try` reads the first two pages with the definition that it writes.

use super::definition::secret;
use serde_json::json;
use std::collections::HashSet;
use tidemill_core::Json;
use tidemill_core::feed_definition::{Paginator, Place, RecordQuery};
use tidemill_feeds::rest::{RestError, RestPage, RestSource, parse_definition};
use tidemill_feeds::{Network, Tuning};

/// Evidence of the second page for or against the paginator.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// The second page has this number of records, and none of the first page.
    Confirmed(usize),
    /// There is no second page, so the paginator is neither confirmed nor contradicted.
    Open(String),
    /// The second page shows that the paginator is wrong, or it cannot be read.
    Contradicted(String),
}

impl Confirmation {
    /// Returns the question that is left to the author.
    pub(super) fn question(&self) -> Option<String> {
        match self {
            Self::Confirmed(_) => None,
            Self::Open(reason) => Some(format!("the paginator is not confirmed, because {reason}")),
            Self::Contradicted(reason) => {
                Some(format!("the paginator is probably wrong: {reason}; correct `paginator`"))
            }
        }
    }

    /// Returns the line of the report.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Confirmed(1) => "1 other record confirms the paginator".to_owned(),
            Self::Confirmed(records) => format!("{records} other records confirm the paginator"),
            Self::Open(_) => "not read".to_owned(),
            Self::Contradicted(_) => "contradicts the paginator".to_owned(),
        }
    }

    pub(super) fn json(&self) -> Json {
        let is_confirmed = match self {
            Self::Confirmed(_) => Some(true),
            Self::Open(_) => None,
            Self::Contradicted(_) => Some(false),
        };
        json!({"is_confirmed": is_confirmed, "question": self.question()})
    }
}

/// Reads the first two pages of a definition. `None` if the definition leaves the paginator open.
pub(super) async fn confirm(definition: &str, tuning: Tuning) -> Option<Confirmation> {
    // A definition that is not complete yet cannot be read.
    let parsed = parse_definition(definition).ok()?;
    match parsed.paginator {
        Paginator::Auto { .. } => return None,
        Paginator::SinglePage => {
            return Some(Confirmation::Open("the answer has no sign of another page".to_owned()));
        }
        Paginator::PageNumber { .. }
        | Paginator::Offset { .. }
        | Paginator::Cursor { .. }
        | Paginator::JsonLink { .. }
        | Paginator::HeaderCursor { .. }
        | Paginator::HeaderUrl { .. }
        | Paginator::HeaderLink { .. }
        | Paginator::Keyset { .. }
        | Paginator::GraphqlOffset { .. }
        | Paginator::GraphqlConnection { .. } => {}
    }
    let source = RestSource::new(parsed, &secret, &Network::Unrestricted, tuning).ok()?;
    Some(second_page(&source).await.unwrap_or_else(|error| Confirmation::Contradicted(error.to_string())))
}

async fn second_page(source: &RestSource) -> Result<Confirmation, RestError> {
    let (query, limit) = (RecordQuery::default(), source.page_limit());
    let first = source.page(&query, &Place::default(), limit).await?;
    let Some(next) = &first.next else {
        return Ok(Confirmation::Open("the list ends with its first page".to_owned()));
    };
    let second = source.page(&query, next, limit).await?;
    Ok(compare(&first, &second))
}

fn compare(first: &RestPage, second: &RestPage) -> Confirmation {
    let known: HashSet<&str> = first.items.iter().map(|item| item.record_id.as_str()).collect();
    let repeated = second.items.iter().filter(|item| known.contains(item.record_id.as_str())).count();
    match (second.items.len(), repeated) {
        (0, _) => Confirmation::Open("the second page is empty".to_owned()),
        (records, 0) => Confirmation::Confirmed(records),
        (records, repeated) => Confirmation::Contradicted(format!(
            "{repeated} of {records} records of page 2 are also on page 1"
        )),
    }
}
