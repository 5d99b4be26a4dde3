//! The `tidemill` binary: commands, configuration and words. The rules are elsewhere.

mod args;
mod args_alert;
mod args_hook;
mod args_sync;
mod commands;
mod config;
mod config_alerts;
mod environment;
mod fail;
mod out;
mod times;

use args::{Arguments, Command};
use clap::Parser as _;
use fail::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The two hidden steps that stand between a worker and its command run before anything else, with no threads.
    match environment::hidden_step() {
        Some(environment::Hidden::Supervise) => {
            return tidemill_supervisor::supervise(&["supervise", "launch"]);
        }
        Some(environment::Hidden::Launch) => return tidemill_supervisor::launch(),
        None => {}
    }
    let arguments = Arguments::parse();
    let out = out::Out::new(arguments.global.json);
    start_log(&arguments.command);
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
        return config::command(command, &arguments.global, out);
    }
    let config = config::load(&arguments.global)?;
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.map_err(|error| Failure::outage(format!("could not start: {error}")))?;
    let code = threads.block_on(commands::dispatch(arguments, config, out));
    threads.shutdown_timeout(std::time::Duration::from_millis(200));
    code
}

/// Logs go to standard error; a loop says more than a single command.
fn start_log(command: &Command) {
    let quiet = !matches!(command, Command::Work(_) | Command::Sweep { .. });
    let default = if quiet { "error" } else { "tidemill=info,tidemill_engine=info,sqlx=error,warn" };
    let filter = environment::log_filter().unwrap_or_else(|| default.to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(out::is_terminal(&std::io::stderr()))
        .init();
}
