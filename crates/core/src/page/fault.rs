//! Why a partition cannot be read, or must be read again.

/// Why a partition is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum RereadReason {
    /// The list moved so far that the page before was not found again.
    #[error("the list moved so far that the page before offset {next_offset} was not found again")]
    LostPlace {
        /// How far it was read.
        next_offset: u64,
    },
    /// The feed counts more records than were seen.
    #[error("the feed counts {count} records, and {seen} were seen")]
    CountIsHigher {
        /// Records seen.
        seen: u64,
        /// Records counted.
        count: u64,
    },
}

/// Why a partition cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PageFault {
    /// The feed gives the same page whatever offset is asked for.
    #[error("the feed gave the same page again at offset {offset}, as if it ignored the offset")]
    Repeats {
        /// The place in the source's list.
        offset: u64,
    },
    /// Nothing in the page has an id.
    #[error("the page at offset {offset} has {places} records and none has an id")]
    NoIds {
        /// The place in the source's list.
        offset: u64,
        /// Records in the page.
        places: usize,
    },
    /// Pages that follow one another were never found to meet.
    #[error(
        "the page before offset {next_offset} was not found again in {passes} passes; the feed has no stable order"
    )]
    NeverMeets {
        /// How far it was read.
        next_offset: u64,
        /// How often.
        passes: u32,
    },
    /// The feed counts more records than it gives.
    #[error("the feed counts {count} records, and {seen} were seen in {passes} passes")]
    CountsDisagree {
        /// Records seen.
        seen: u64,
        /// Records counted.
        count: u64,
        /// How often it was read.
        passes: u32,
    },
}
