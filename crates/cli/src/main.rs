//! The `tidemill` binary: command line, configuration and output.

mod args;
mod commands;
mod config;
#[cfg(test)]
mod console_tests;
#[cfg(test)]
mod deploy_tests;
mod environment;
mod failure;
mod help;
mod in_process;
mod line;
mod local_token;
#[cfg(test)]
mod manifest_tests;
mod observe;
mod out;
#[cfg(test)]
mod reference;
mod remote;
mod requests;
mod retry;
mod table;
mod times;
mod values;

use args::{Arguments, Command};
use environment::InternalCommand;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Supervisors fork, so they must run before any thread is started.
    match environment::internal_command() {
        Some(InternalCommand::Supervise) => return tidemill_supervisor::supervise(&["supervise", "launch"]),
        Some(InternalCommand::SuperviseLasting) => {
            return tidemill_supervisor::supervise_detached(&["supervise", "launch"]);
        }
        Some(InternalCommand::Launch) => return tidemill_supervisor::launch(),
        None => {}
    }
    let arguments = match help::parse() {
        Ok(arguments) => arguments,
        // With --json, errors are JSON, too. Help is not an error, and stays text.
        Err(error) if error.use_stderr() && environment::wants_json() => {
            let failure = Failure::from(error);
            out::Out::new(true).print_failure(&failure);
            return failure.exit_code();
        }
        Err(error) => error.exit(),
    };
    let out = out::Out::new(arguments.global.json);
    match run(arguments, out) {
        Ok(code) => code,
        Err(failure) => {
            out.print_failure(&failure);
            failure.exit_code()
        }
    }
}

fn run(arguments: Arguments, out: out::Out) -> Result<ExitCode, Failure> {
    if let Command::Completions(args) = &arguments.command {
        commands::completions::completions(args);
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Man(args) = &arguments.command {
        return commands::man::man(args);
    }
    if let Command::Config { command } = &arguments.command {
        commands::refuse_server(&arguments)?;
        return commands::config::command(command, &arguments.global, out);
    }
    let config = config::load(&arguments.global)?;
    let traces = observe::start(&arguments.global, &arguments.command, &config);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::outage(format!("could not start the runtime: {error}")))?;
    let code = runtime.block_on(commands::dispatch(arguments, config, out));
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    drop(traces);
    code
}
