//! A stand-in supplier that speaks the Nivoda API: for the demo, the tests and the benchmarks.
//!
//! It answers over real HTTP, makes its stones from a seed, changes them when told, misbehaves when told, and
//! says afterwards what is true. Nothing in it knows the pipeline.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidemill_supplier::{Change, Config, Supplier, What};
//!
//! let supplier = Supplier::bind(Config { stones: 50_000, seed: 7, ..Config::default() }).await?.spawn();
//! let api = &supplier.endpoint; // http://127.0.0.1:…/api/diamonds
//! supplier.handle.behave(|behaviour| behaviour.fail_next = 3);
//! supplier.handle.change(&Change::some(What::Price, 100, 1))?;
//! let truth = supplier.handle.truth();
//! # Ok(()) }
//! ```
//!
//! # The API
//!
//! `POST /api/diamonds` takes GraphQL as the real supplier does. `authenticate { username_and_password }`
//! gives a token, and everything else is below `as(token)`: `diamonds_by_query_count`, `diamonds_by_query`
//! and `get_diamond_by_id`. The quirks of the real one are kept:
//!
//! - `total_count` is the length of the page, and a page has at most 50 stones;
//! - prices are compared in whole dollars, cut off, both ends included;
//! - a range that ends before it begins answers with some 30 arbitrary stones;
//! - an item does not say when it was updated, though `updated` filters by it;
//! - a stone that is sold is still found by its id, one that is removed is not.
//!
//! Stones are listed in the order of their creation. A new one comes last, and one that vanishes moves all
//! that follow it up by one place, under the eyes of a client that is paging.
//!
//! # The stones
//!
//! Only what can change is kept of a stone, in 24 bytes. The rest follows from the seed, its number and its
//! versions, and is written out when it is asked for. The same seed and the same orders give the same bytes.
//!
//! Counts and pages are answered from lists that are kept up to date one stone at a time (`index.rs`). A
//! document that the executor has accepted once is answered from prepared texts from then on (`fast.rs`).
//! That needs the token, the filters and the offset to be variables: with literals every request is another
//! document.
//!
//! # The admin endpoints
//!
//! They are for peers on the same machine; [`Handle`] does the same from within the process.
//!
//! | endpoint | does |
//! |---|---|
//! | `GET`, `POST /admin/behaviour` | shows or merges the [`Behaviour`] |
//! | `POST /admin/change` | carries a [`Change`] out |
//! | `POST /admin/churn` | sets the [`Churn`]: stones change with time, or with each page; `{}` stops it |
//! | `POST /admin/clock` | stops the clock: `{"now": "2026-03-04T05:06:07Z"}`; `null` lets it go on |
//! | `GET /admin/stats` | what was asked so far, and the processor time: [`Stats`] |
//! | `GET /admin/truth` | a line of JSON for each stone there ever was: [`Truth`] |
//! | `POST /admin/truth` | the same for the stones that a `DiamondQuery` selects |
//!
//! The hash in the truth is over the text of the item exactly as a page has it that selects
//! [`STANDARD_SELECTION`]: the fields in that order, without spaces. The truth is read in pieces, so stop the
//! churn before you ask for it.

mod admin;
mod api;
mod behaviour;
mod clock;
mod config;
mod desk;
mod fast;
mod filter;
mod index;
mod item;
mod life;
mod out;
mod price;
mod random;
mod schema;
mod server;
mod stats;
mod stone;
mod template;
mod world;

pub use admin::Truth;
pub use behaviour::{Behaviour, DateHeader, Double, FailWith, Outage, Target};
pub use config::{Account, Config, MAX_STONES};
pub use desk::MAX_LIMIT;
pub use life::{Change, Changed, Churn, Mix, What};
pub use price::Distribution;
pub use server::{BindError, Handle, Running, Supplier};
pub use stats::Stats;
pub use template::STANDARD_SELECTION;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. What it guards is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
