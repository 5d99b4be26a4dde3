//! Lists, a page at a time.

use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// What to pass as `after` to get the next page; nothing on the last one.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A list that is whole.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}
