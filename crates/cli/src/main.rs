//! The `tidemill` binary: commands, configuration and words. The rules are elsewhere.

mod args;
mod args_access;
mod args_agent;
mod args_alert;
mod args_graph;
mod args_hook;
mod args_list;
mod args_server;
mod args_sync;
mod asking;
mod commands;
mod config;
mod config_alerts;
mod config_server;
mod config_sync;
mod environment;
mod fail;
mod local;
mod observe;
mod out;
mod patient;
mod remote;
#[cfg(test)]
mod shown_tests;
mod times;

use args::{Arguments, Command};
use clap::Parser as _;
use fail::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The hidden steps that stand between a worker or an agent and its command run before anything else, with
    // no threads.
    match environment::hidden_step() {
        Some(environment::Hidden::Supervise) => {
            return tidemill_supervisor::supervise(&["supervise", "launch"]);
        }
        Some(environment::Hidden::SuperviseLasting) => {
            return tidemill_supervisor::supervise_detached(&["supervise", "launch"]);
        }
        Some(environment::Hidden::Launch) => return tidemill_supervisor::launch(),
        None => {}
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // A program that asked for JSON is told in JSON what is wrong; help is for people all the same.
        Err(error) if error.use_stderr() && environment::wants_json() => {
            let failure = Failure::from(error);
            out::Out::new(true).failure(&failure);
            return failure.exit_code();
        }
        Err(error) => error.exit(),
    };
    let out = out::Out::new(arguments.global.json);
    match run(arguments, out) {
        Ok(code) => code,
        Err(failure) => {
            out.failure(&failure);
            failure.exit_code()
        }
    }
}

fn run(arguments: Arguments, out: out::Out) -> Result<ExitCode, Failure> {
    if let Command::Completions { shell } = arguments.command {
        commands::completions(shell);
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Config { command } = &arguments.command {
        commands::beside_its_database(&arguments)?;
        return config::command(command, &arguments.global, out);
    }
    let config = config::load(&arguments.global)?;
    let watched = observe::start(&arguments.global, &arguments.command, &config);
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.map_err(|error| Failure::outage(format!("could not start: {error}")))?;
    let code = threads.block_on(commands::dispatch(arguments, config, out));
    threads.shutdown_timeout(std::time::Duration::from_millis(200));
    drop(watched);
    code
}
