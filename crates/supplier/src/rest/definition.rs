//! Feed definitions that read the REST API.

use super::RestKind;
use super::item::selection;

/// Items per page of [`rest_definition`].
const PAGE_SIZE: u32 = 100;

/// Largest number of ids in a lookup.
const IDS_MAX: u32 = 50;

/// A feed definition of the REST API.
///
/// The definition is incremental, is divided into ranges of the price, looks missing items up by id, and deletes sold
/// ones. A single page is not divided.
#[derive(Debug, Clone, Copy)]
pub struct RestDefinition<'a> {
    /// URL of the REST API; see [`RunningSupplier::rest_url`](crate::RunningSupplier::rest_url).
    pub base_url: &'a str,
    /// Name of the feed.
    pub feed: &'a str,
    /// Table that receives the items, with its schema.
    pub table: &'a str,
    pub kind: RestKind,
    /// Items per page, at most [`REST_LIMIT_MAX`](crate::REST_LIMIT_MAX).
    pub page_size: u32,
}

/// Returns a feed definition of the REST API as YAML, with 100 items per page.
pub fn rest_definition(base_url: &str, feed: &str, table: &str, kind: RestKind) -> String {
    RestDefinition { base_url, feed, table, kind, page_size: PAGE_SIZE }.to_yaml()
}

const COLUMNS: &str = "    id: {type: text, nullable: false}
    sku: {type: text}
    name: {type: text}
    status: {type: text}
    price: {type: decimal, nullable: false}
    currency: {type: text}
    brand: {type: text, nullable: false}
    quantity: {type: integer}
    weight_kg: {type: decimal}
    is_fragile: {type: boolean}
    is_expensive: {cel: 'double(record.price) >= 5000.0', type: boolean}
    tags: {type: json}
    dimensions: {type: json}
    warehouse: warehouse.code
    country: warehouse.country
    variants: {type: json}
    image_url: {type: text}
    notes: {type: text}
    source: {constant: supplier}
    released_on: {type: date}
    created_at: {type: timestamp}
    updated_at: {type: timestamp}
";

const VARIABLES: &str = "$priceFrom: Float, $priceTo: Float, $updatedSince: String, $ids: [ID!]";
const ARGUMENTS: &str = "priceFrom: $priceFrom, priceTo: $priceTo, updatedSince: $updatedSince, ids: $ids";

impl RestDefinition<'_> {
    /// Returns the definition as YAML.
    pub fn to_yaml(&self) -> String {
        let Self { base_url, feed, table, .. } = self;
        format!(
            "version: 1\nfeed: {feed}\nclient: {{base_url: '{base_url}', rate: 0}}\n\
             resource:\n{}\npaginator: {{type: {}{}}}\n\
             incremental: {{cursor_path: updated_at, {}}}\npartition:{}\ntrust: {}\n\
             deletes:\n  lookup: {{{}, ids_max: {}}}\n  flag: {{path: status, equals: sold}}\n\
             into:\n  table: {table}\n  primary_key: id\n  columns:\n{COLUMNS}",
            self.resource(),
            self.kind,
            self.paginator(),
            self.filter("start", "updated_since", "updatedSince"),
            self.partition(),
            self.trust(),
            if self.kind.is_graphql() { "body_path: variables.ids" } else { "param: ids, separator: ','" },
            // All ids of a request fit into one page.
            self.page_size.min(IDS_MAX),
        )
    }

    /// Returns the key of a filter with its parameter, or its variable in a GraphQL request.
    fn filter(&self, key: &str, param: &str, variable: &str) -> String {
        if self.kind.is_graphql() {
            format!("{key}_body_path: variables.{variable}")
        } else {
            format!("{key}_param: {param}")
        }
    }

    fn resource(&self) -> String {
        let (document, selector) = match self.kind {
            RestKind::GraphqlOffset => (
                format!(
                    "query Items($offset: Int, $limit: Int, {VARIABLES}) {{ \
                     items(offset: $offset, limit: $limit, {ARGUMENTS}) {{ totalCount nodes {{ {} }} }} }}",
                    selection()
                ),
                "data.items.nodes",
            ),
            RestKind::GraphqlConnection => (
                format!(
                    "query Items($after: String, $first: Int, {VARIABLES}) {{ \
                     itemsConnection(after: $after, first: $first, {ARGUMENTS}) {{ \
                     pageInfo {{ hasNextPage endCursor }} edges {{ node {{ {} }} }} }} }}",
                    selection()
                ),
                "'data.itemsConnection.edges[*].node'",
            ),
            RestKind::SinglePage
            | RestKind::PageNumber
            | RestKind::Offset
            | RestKind::Cursor
            | RestKind::JsonLink
            | RestKind::HeaderCursor
            | RestKind::HeaderUrl
            | RestKind::HeaderLink
            | RestKind::Keyset => {
                let (kind, selector) = (self.kind, if self.kind.has_envelope() { "data" } else { "$" });
                return format!("  path: /{kind}/items\n  data_selector: {selector}\n  primary_key: id");
            }
        };
        format!(
            "  path: /graphql\n  graphql:\n    query: '{document}'\n  data_selector: {selector}\n  primary_key: id"
        )
    }

    /// Returns the keys of the paginator after its type.
    fn paginator(&self) -> String {
        let keys = match self.kind {
            RestKind::SinglePage => return String::new(),
            RestKind::PageNumber => "page_param: page, base_page: 1",
            RestKind::Offset => "offset_param: offset",
            RestKind::Cursor => "cursor_path: meta.next_cursor, cursor_param: cursor",
            RestKind::JsonLink => "next_url_path: links.next",
            RestKind::HeaderCursor => "cursor_key: x-next-cursor, cursor_param: cursor",
            RestKind::HeaderUrl => "header: x-next-page",
            RestKind::HeaderLink => "links_next_key: next",
            RestKind::Keyset => "key_path: id, cursor_param: after_id",
            RestKind::GraphqlOffset => "offset_variable: offset, limit_variable: limit",
            RestKind::GraphqlConnection => {
                "connection_path: data.itemsConnection, cursor_variable: after, limit_variable: first"
            }
        };
        let limit = self.kind.limit_param().map(|param| format!(", limit_param: {param}"));
        format!(", {keys}, limit: {}{}", self.page_size, limit.unwrap_or_default())
    }

    fn partition(&self) -> String {
        if self.kind == RestKind::SinglePage {
            return " {type: none}".to_owned();
        }
        let count = if self.kind.is_graphql() {
            format!(
                "{{path: /graphql, graphql: {{query: 'query Count({VARIABLES}) {{ itemsCount({ARGUMENTS}) }}'}}, \
                 total_path: data.itemsCount}}"
            )
        } else {
            format!("{{path: /{}/items/count, total_path: total}}", self.kind)
        };
        format!(
            "\n  type: heatmap\n  field: price\n  kind: money\n  decimals: 2\n  from: 0\n  to: 500000\n  \
             granularity: 1\n  {}\n  {}\n  count: {count}",
            self.filter("from", "price_from", "priceFrom"),
            self.filter("to", "price_to", "priceTo"),
        )
    }

    /// Returns the rules of trust. A total is checked where it belongs to the same list as the position of the page.
    const fn trust(&self) -> &'static str {
        match self.kind {
            RestKind::SinglePage => "{total_header: x-total-count}",
            RestKind::PageNumber => "{end: total, total_path: meta.total}",
            RestKind::Offset => "{end: has_more, has_more_path: meta.has_more, total_header: x-total-count}",
            RestKind::Keyset => "{end: has_more, has_more_path: meta.has_more}",
            RestKind::GraphqlOffset => "{end: empty_page, total_path: data.items.totalCount}",
            RestKind::Cursor
            | RestKind::JsonLink
            | RestKind::HeaderCursor
            | RestKind::HeaderUrl
            | RestKind::HeaderLink
            | RestKind::GraphqlConnection => "{end: no_next}",
        }
    }
}
