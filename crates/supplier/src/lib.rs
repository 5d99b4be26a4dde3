//! A stand-in for the Nivoda API, for the demo, the tests and the benchmarks.
//!
//! It serves real HTTP and generates its stones from a seed. Tests can change stones, configure failures, and read the
//! true state afterwards. It does not depend on the pipeline.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidemill_supplier::{Change, Config, Supplier, ChangeKind};
//!
//! let supplier = Supplier::bind(Config { stones: 50_000, seed: 7, ..Config::default() }).await?.spawn();
//! let api = &supplier.endpoint; // http://127.0.0.1:…/api/diamonds
//! supplier.handle.behave(|behaviour| behaviour.fail_next = 3);
//! supplier.handle.change(&Change::random(ChangeKind::Price, 100, 1))?;
//! let truth = supplier.handle.truth();
//! # Ok(()) }
//! ```
//!
//! # The API
//!
//! `POST /api/diamonds` accepts GraphQL queries like the real supplier. `authenticate { username_and_password }`
//! returns a token, and all other fields are below `as(token)`: `diamonds_by_query_count`, `diamonds_by_query`
//! and `get_diamond_by_id`. Mutations, directives and introspection are rejected with a GraphQL error. The quirks of
//! the real API are reproduced:
//!
//! - `total_count` is the length of the page, and a page has at most 50 stones;
//! - prices are truncated to whole dollars before they are compared, and both ends of a range are included;
//! - an inverted range returns about 30 arbitrary stones;
//! - an item has no update time, although `updated` filters by it;
//! - a sold stone is still found by its id, a removed stone is not.
//!
//! Stones are listed in the order of their creation. A new stone comes last. When a stone vanishes, all following
//! stones move up by one position, even while a client is paging.
//!
//! # The REST API
//!
//! A REST API offers the same stones as items of a general shop, with all the changes and failures above. Each
//! [`RestKind`] is a way of pagination.
//!
//! `GET /rest/{kind}/items` lists items, `/rest/{kind}/items/count` counts them, and
//! `/rest/{kind}/items/{id}` returns one. `POST /rest/graphql` has the fields `items`, `itemsConnection` and
//! `itemsCount`. `/rest/items` has the kind `offset`. Requests need no account.
//!
//! The filters are `price_from`, `price_to` (exclusive), `updated_since` (inclusive) and `ids`, separated by commas. A
//! page has at most [`REST_LIMIT_MAX`] items. A list contains active items. With `updated_since` or `ids` it also
//! contains sold ones, whose `status` is `sold`; stones on hold count as sold. [`rest_definition`] returns a feed
//! definition of each kind, and [`Handle::rest_truth`] the active items.
//!
//! # The stones
//!
//! Only the mutable state of a stone is stored, in 24 bytes. All other values are computed from the seed, its number
//! and its versions when they are requested. The same seed and the same changes give the same bytes.
//!
//! Counts and pages are answered from lists that are updated with each change of a stone (`index.rs`). Compiled
//! documents are cached (`graphql.rs`). The cache is effective only if the token, the filters and the offset are
//! variables, because each set of literals makes a new document.
//!
//! # The admin endpoints
//!
//! They are available to peers on the same machine only. [`Handle`] offers the same functions within the process.
//!
//! | endpoint | does |
//! |---|---|
//! | `GET`, `POST /admin/behaviour` | shows or merges the [`Behaviour`] |
//! | `POST /admin/change` | applies a [`Change`] |
//! | `POST /admin/churn` | sets the [`Churn`]: random changes per second or per page; `{}` stops it |
//! | `POST /admin/clock` | sets the clock to a fixed time: `{"now": "2026-03-04T05:06:07Z"}`; `null` resumes it |
//! | `GET /admin/stats` | counters of requests, and the processor time: [`Stats`] |
//! | `GET /admin/truth` | one line of JSON for each stone, including vanished ones: [`Truth`] |
//! | `POST /admin/truth` | the same for the stones that a `DiamondQuery` selects |
//! | `GET /admin/rest-truth` | the active items of the REST API, one line of JSON for each |
//!
//! The hash in the truth covers the JSON text of the item exactly as in a page that selects [`STANDARD_SELECTION`]: the
//! fields in that order, without spaces. The truth is read in chunks, so stop the churn before you request it.

mod admin;
mod api;
mod behaviour;
mod catalogue;
mod changes;
mod clock;
mod config;
mod failure;
mod filter;
mod graphql;
mod index;
mod item;
mod json_writer;
mod listing;
mod price;
mod random;
mod rest;
mod server;
mod state;
mod stats;
mod stone;
mod template;

pub use admin::Truth;
pub use behaviour::{Behaviour, DateHeader, DuplicateListing, FailWith, Outage, Target};
pub use changes::{Change, ChangeKind, ChangeMix, ChangeOutcome, Churn};
pub use config::{Account, Config, MAX_STONES};
pub use price::Distribution;
pub use rest::{REST_LIMIT_MAX, RestDefinition, RestKind, rest_definition};
pub use server::{BindError, Handle, RunningSupplier, Supplier};
pub use state::MAX_LIMIT;
pub use stats::Stats;
pub use template::STANDARD_SELECTION;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A poisoned lock is ignored, because the guarded values are consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
