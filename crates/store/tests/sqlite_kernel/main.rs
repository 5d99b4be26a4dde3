//! The kernel on SQLite: each verb, each trigger, and the plain SQL that an operator may type.
//!
//! The conformance suite holds both databases to the same answers; these cases are about what is SQLite's
//! own.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod bench;
mod by_hand;
mod ends;
mod groups;
mod waiting;
