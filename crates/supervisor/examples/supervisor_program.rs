//! The test program: a supervisor of either mode, a launch step, or a process that starts commands and can be killed or
//! frozen.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidemill_supervisor::{
    BootInstant, DetachedCommand, DetachedSpec, Report, Spec, SupervisedCommand, launch, supervise,
    supervise_detached,
};

/// Number of output lines that the worker prints; tests do not read the rest of a flood.
const LINES_SHOWN: usize = 100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["supervise"] => supervise(&["supervise", "launch"]),
        ["supervise", "launch"] => launch(),
        ["detached"] => supervise_detached(&["supervise", "launch"]),
        ["starter", dir, spec] => match start(dir, spec) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "{error}");
                ExitCode::FAILURE
            }
        },
        ["worker", contact_max_millis, script] => match work(contact_max_millis, script) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "{error}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::from(2),
    }
}

/// Starts a detached command, prints a line, and waits to be killed.
#[tokio::main]
async fn start(dir: &str, spec: &str) -> Result<(), Box<dyn Error>> {
    let spec: DetachedSpec = serde_json::from_str(spec)?;
    let command = DetachedCommand::new(dir);
    let own = Path::new("/proc/self/exe");
    let mut child = command.start(own, &["detached"], &spec, Vec::new(), BootInstant::now()).await?;
    writeln!(io::stdout(), "started")?;
    child.wait().await?;
    std::future::pending().await
}

/// Runs `script` in a shell, confirms contact continuously, and prints the reports.
#[tokio::main]
async fn work(contact_max_millis: &str, script: &str) -> Result<(), Box<dyn Error>> {
    let spec = Spec {
        command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: Vec::new(),
        env_remove: Vec::new(),
        dir: None,
        stdin: Vec::new(),
        contact: BootInstant::now(),
        contact_max: Duration::from_millis(contact_max_millis.parse()?),
        line_bytes_max: 1000,
    };
    let mut supervised = SupervisedCommand::spawn(Path::new("/proc/self/exe"), &["supervise"], &spec).await?;
    let control = supervised.control();
    tokio::spawn(async move {
        loop {
            control.contact(BootInstant::now());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut stdout = io::stdout();
    let mut lines = 0;
    while let Some(report) = supervised.next().await? {
        match report {
            Report::Started { pid } => writeln!(stdout, "started {pid}")?,
            Report::Output { text, .. } if lines < LINES_SHOWN => {
                lines += 1;
                writeln!(stdout, "line {text}")?;
            }
            Report::Output { .. } => {}
            Report::Exited(end) => writeln!(stdout, "end {end}")?,
        }
    }
    Ok(())
}
