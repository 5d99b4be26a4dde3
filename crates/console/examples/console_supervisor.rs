//! Supervisor program for the tests. Their agent runs inside the test process, which cannot supervise commands itself.

use std::process::ExitCode;
use tidemill_supervisor::{launch, supervise_detached};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["supervise", "lasting"] => supervise_detached(&["supervise", "launch"]),
        ["supervise", "launch"] => launch(),
        _ => ExitCode::from(2),
    }
}
