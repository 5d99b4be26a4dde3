//! Graphs with a real server, real controllers and real agents, on both stores. The oracle is what the commands wrote
//! to disk: no job ever ran twice at the same time, and every job ended once.

mod arrows;
mod cancel_stages;
mod cancels;
mod clocks;
mod controllers;
mod cuts;
mod death_stages;
mod deaths;
mod directories;
mod ends;
mod examples;
mod flags;
mod gate;
mod ground;
mod newer;
pub(crate) mod pasted;
mod secrets;
mod skew;
mod words;
