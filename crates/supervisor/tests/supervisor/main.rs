//! Real commands under a real supervisor: what is promised about their life, their output and their end.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod contact;
mod ends;
mod lasting;
mod output;
mod stage;
mod stopping;
mod surroundings;
