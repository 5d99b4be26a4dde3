//! Pages of lists, with their cursors.

use serde::{Deserialize, Serialize};

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
// Without a name of its own, each kind of page would get a number, which changes when a route is added.
#[cfg_attr(feature = "schema", schemars(rename = "PageOf{T}"))]
pub struct Page<T> {
    /// Entries of the page.
    pub items: Vec<T>,
    /// Cursor to pass as `after` for the next page; null on the last page.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page that contains the complete list.
    pub fn complete(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}
