//! The stand-in supplier over real HTTP: its API, each way of misbehaving, and how its stones live.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

mod answers;
mod knobs;
mod life;
mod stage;
mod throughput;
