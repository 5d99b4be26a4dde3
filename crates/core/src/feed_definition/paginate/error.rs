//! Errors of sources that contradict themselves between pages.

use crate::feed_definition::paging::TotalLocation;
use crate::limits::FEED_TOKEN_BYTES_MAX;
use std::fmt;

/// Length to which a token is cut in a message.
const EXCERPT_CHARS: usize = 80;

/// Why a page cannot be determined. Most errors are contradictions of the source, with the evidence. The message is the
/// rest of a sentence that begins with the source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaginationError {
    /// The page cannot be requested, because no token leads to it.
    #[error("has no page at offset {offset} without a token; read the partition from its beginning")]
    UnreachablePlace { offset: u64 },
    /// The offset does not begin a page.
    #[error("has no page that begins at offset {offset}; its pages have {page_size} records")]
    Misaligned { offset: u64, page_size: u64 },
    /// The answer leads to a page that was already read.
    #[error("answered the same cursor `{token}` again, so the list would never end")]
    RepeatedToken { token: String },
    /// The next URL leads elsewhere.
    #[error("answered a next URL on `{host}`, but the feed may only use `{allowed}`")]
    ForeignUrl { host: String, allowed: String },
    #[error("answered the next URL `{url}`, which is not a valid URL")]
    InvalidUrl { url: String },
    /// The flag reports more records, but the response has no token.
    #[error("reports more records in `{flag}`, but answered no cursor")]
    NoToken { flag: String },
    /// The flag reports more records, but the page is empty.
    #[error("reports more records in `{promise}`, but answered an empty page")]
    EmptyPage { promise: String },
    #[error("answered without the flag `{path}`; check `trust.has_more_path`")]
    NoFlag { path: String },
    #[error("answered without a total in {location}; check the definition")]
    NoTotal { location: String },
    /// The list has another length than the source reported.
    #[error("reports a total of {total} records, but its pages contain {read}")]
    TotalContradiction { total: u64, read: u64 },
    /// Pages before the last one must be full, because the position of a page follows from its number.
    #[error(
        "answered {records} records on a page of {page_size} before the end; set `limit` to its largest page"
    )]
    ShortPage { records: usize, page_size: u32 },
    #[error("answered a last record without `{path}`, which the next page needs")]
    NoKey { path: String },
    #[error("answered {found} in `{path}` instead of a cursor")]
    InvalidToken { path: String, found: &'static str },
    #[error("answered a cursor with a NUL character, which databases cannot store")]
    NulInToken,
    #[error("answered a cursor of {bytes} bytes; at most {FEED_TOKEN_BYTES_MAX} are allowed")]
    TokenTooLong { bytes: usize },
}

/// Shortens a token for a message.
pub(super) fn excerpt(token: &str) -> String {
    crate::text::escaped(&token.chars().take(EXCERPT_CHARS).collect::<String>())
}

impl fmt::Display for TotalLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "`{path}`"),
            Self::Header(name) => write!(f, "the header `{name}`"),
        }
    }
}
