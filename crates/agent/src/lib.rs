//! An agent: takes tasks, has them carried out, and reports. It needs outbound HTTP alone, and decides nothing.
//!
//! What it knows is on its disk and in the process table, never only in its memory: it may be killed at any
//! moment and started again, and goes on where it was. A command runs under a supervisor of its own and
//! outlives the agent. Nothing is started before the server has said that the task is still this agent's.
//!
//! Of the machine's clocks it reads only those that count: what the wall clock says does not matter.

mod artifacts;
mod beat;
mod beneath;
mod cancel;
mod carry;
mod conclude;
mod disk;
mod door;
mod executor;
mod finish;
mod held;
mod home;
mod inputs;
mod kept;
mod launch;
mod logs;
mod order;
mod outputs;
mod panics;
mod place;
mod poll;
mod probe;
mod report;
mod run;
mod secrets;
mod settings;
mod stage;
mod wait;

pub use executor::{Executor, Fault, Launch, Processes};
pub use run::{Carried, Error, run, run_with};
pub use settings::{Commands, Ending, Keep, Probe, Settings};
