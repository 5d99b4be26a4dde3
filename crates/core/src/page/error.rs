//! The reasons for which a partition fails or is read again.

/// The reason for which a partition is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RereadReason {
    /// The list moved so far that no page overlaps the previous one.
    #[error("the list moved so far that the page before offset {next_offset} was not found again")]
    LostPlace { next_offset: u64 },
    /// A small page repeats the previous one.
    #[error("the page at offset {offset} repeats the previous one")]
    Repeats {
        /// Position in the source's list.
        offset: u64,
    },
    /// The feed counts more records than were read.
    #[error("the feed reports {count} records, but {seen} were read")]
    CountIsHigher { seen: u64, count: u64 },
}

/// The reason for which a partition cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PageError {
    /// The feed returns the same page for every offset.
    #[error("the feed gave the same page again at offset {offset}, as if it ignored the offset")]
    Repeats {
        /// Position in the source's list.
        offset: u64,
    },
    /// No record of the page has an id.
    #[error("the page at offset {offset} has {places} records and none has an id")]
    NoIds {
        /// Position in the source's list.
        offset: u64,
        /// Number of records in the page.
        places: usize,
    },
    /// The feed returns only empty pages, and promises further ones.
    #[error("the feed returned {pages} empty pages at offset {offset} and reports more records")]
    EmptyPages {
        /// Position in the source's list.
        offset: u64,
        pages: u32,
    },
    /// Consecutive pages never overlapped.
    #[error(
        "the page before offset {next_offset} was not found again in {passes} passes; the feed has no stable order"
    )]
    NeverMeets { next_offset: u64, passes: u32 },
    /// The feed counts more records than it returns.
    #[error("the feed reports {count} records, but {seen} were read in {passes} passes")]
    CountsDisagree { seen: u64, count: u64, passes: u32 },
}
