//! The ways of pagination, and their parameters.

use std::fmt;

/// A way of pagination, named like the paginator of a feed definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RestKind {
    /// The answer contains the whole list.
    SinglePage,
    /// `page` and `per_page`; the first page is page 1.
    PageNumber,
    /// `offset`, counted from 0, and `limit`.
    Offset,
    /// A cursor in the body, at `meta.next_cursor`.
    Cursor,
    /// The path of the next page in the body, at `links.next`.
    JsonLink,
    /// A cursor in the header `X-Next-Cursor`.
    HeaderCursor,
    /// The URL of the next page in the header `X-Next-Page`.
    HeaderUrl,
    /// The URL of the next page in the header `Link`.
    HeaderLink,
    /// `after_id`, the id of the last item.
    Keyset,
    /// The field `items` of the GraphQL API.
    GraphqlOffset,
    /// The field `itemsConnection` of the GraphQL API.
    GraphqlConnection,
}

impl RestKind {
    pub const ALL: [Self; 11] = [
        Self::SinglePage,
        Self::PageNumber,
        Self::Offset,
        Self::Cursor,
        Self::JsonLink,
        Self::HeaderCursor,
        Self::HeaderUrl,
        Self::HeaderLink,
        Self::Keyset,
        Self::GraphqlOffset,
        Self::GraphqlConnection,
    ];

    /// Name in paths and in feed definitions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SinglePage => "single_page",
            Self::PageNumber => "page_number",
            Self::Offset => "offset",
            Self::Cursor => "cursor",
            Self::JsonLink => "json_link",
            Self::HeaderCursor => "header_cursor",
            Self::HeaderUrl => "header_url",
            Self::HeaderLink => "header_link",
            Self::Keyset => "keyset",
            Self::GraphqlOffset => "graphql_offset",
            Self::GraphqlConnection => "graphql_connection",
        }
    }

    pub const fn is_graphql(self) -> bool {
        matches!(self, Self::GraphqlOffset | Self::GraphqlConnection)
    }

    /// Whether the list is below `data`, next to `meta`. Otherwise the body is the list itself.
    pub const fn has_envelope(self) -> bool {
        match self {
            Self::SinglePage | Self::HeaderCursor | Self::HeaderUrl | Self::HeaderLink => false,
            Self::PageNumber
            | Self::Offset
            | Self::Cursor
            | Self::JsonLink
            | Self::Keyset
            | Self::GraphqlOffset
            | Self::GraphqlConnection => true,
        }
    }

    /// Query parameter of the position of a page.
    pub(super) const fn position_param(self) -> Option<&'static str> {
        match self {
            Self::PageNumber => Some("page"),
            Self::Offset => Some("offset"),
            Self::Cursor | Self::JsonLink | Self::HeaderCursor | Self::HeaderUrl | Self::HeaderLink => {
                Some("cursor")
            }
            Self::Keyset => Some("after_id"),
            Self::SinglePage | Self::GraphqlOffset | Self::GraphqlConnection => None,
        }
    }

    /// Query parameter of the number of items on a page.
    pub(super) const fn limit_param(self) -> Option<&'static str> {
        match self {
            Self::PageNumber | Self::HeaderLink => Some("per_page"),
            Self::Offset
            | Self::Cursor
            | Self::JsonLink
            | Self::HeaderCursor
            | Self::HeaderUrl
            | Self::Keyset => Some("limit"),
            Self::SinglePage | Self::GraphqlOffset | Self::GraphqlConnection => None,
        }
    }
}

impl fmt::Display for RestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for RestKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown kind of pagination `{text}`; use one of {known}")
        })
    }
}
