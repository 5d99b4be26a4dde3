//! An agent: polls the server for tasks, runs their commands and reports the results.
//!
//! It needs outbound HTTP only, and the server makes all scheduling decisions. The agent keeps its state on disk and
//! in the process table: it can be killed at any time, and resumes its tasks after a restart. Each command runs under
//! its own supervisor and outlives the agent. The agent starts a command only after the server has confirmed that the
//! task is still assigned to it.
//!
//! It uses monotonic clocks only, so changes of the wall clock have no effect.

mod agent_dir;
mod artifacts;
mod authorities;
mod backoff;
mod cancel;
mod conclude;
mod confined_dir;
mod disk;
mod executor;
mod finish;
mod heartbeat;
mod held_tasks;
mod inputs;
mod isolation;
mod launch;
mod logs;
mod order;
mod outputs;
mod panics;
mod poll;
mod probe;
mod progress;
mod report;
mod retention;
mod run;
mod secrets;
mod server_client;
mod settings;
mod task;
mod task_dir;
mod task_users;

pub use executor::{Executor, Launch, ProcessExecutor, TaskError};
pub use run::{AgentSummary, Error, run, run_with};
pub use settings::{CommandsOnExit, ExitPolicy, IsolationMode, Probe, RetentionPolicy, Settings};
pub use task_users::UserRange;
