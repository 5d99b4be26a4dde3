//! Graphs with real servers, controllers and agents, on both databases.
//!
//! The commands write a ledger to disk, which shows that no job ran twice at the same time and that every job ended
//! once.

mod agent_death_by_stage;
mod cancel;
mod cancel_by_stage;
mod clock_skew;
mod controllers;
pub(crate) mod doc_commands;
mod example_graphs;
pub(crate) mod fixture;
mod flags;
mod graph_commands;
mod isolation_report;
mod job_outcomes;
mod network_cuts;
mod newer_server;
mod other_release_agent;
mod process_deaths;
mod proxy;
mod removed_directories;
mod secrets;
mod transitions;
