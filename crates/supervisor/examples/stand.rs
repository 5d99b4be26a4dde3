//! The program that the tests start: a supervisor of either mode, a launch step, or one that starts
//! commands, which they may kill or freeze.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidemill_supervisor::{
    Lasting, LastingSpec, Moment, Report, Spec, Supervised, launch, supervise, supervise_detached,
};

/// How many lines of the command the worker repeats; a flood is not for the tests to read.
const LINES_SHOWN: usize = 100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["supervise"] => supervise(&["supervise", "launch"]),
        ["supervise", "launch"] => launch(),
        ["lasting"] => supervise_detached(&["supervise", "launch"]),
        ["starter", dir, spec] => match begin(dir, spec) {
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

/// Starts a command that outlives us, says so, and waits to be killed.
#[tokio::main]
async fn begin(dir: &str, spec: &str) -> Result<(), Box<dyn Error>> {
    let spec: LastingSpec = serde_json::from_str(spec)?;
    let lasting = Lasting::new(dir);
    let own = Path::new("/proc/self/exe");
    let mut child = lasting.start(own, &["lasting"], &spec, Vec::new(), Moment::now()).await?;
    writeln!(io::stdout(), "begun")?;
    child.wait().await?;
    std::future::pending().await
}

/// Runs `script` in a shell, gives signs of contact all the time, and prints what it is told.
#[tokio::main]
async fn work(contact_max_millis: &str, script: &str) -> Result<(), Box<dyn Error>> {
    let spec = Spec {
        command: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()],
        env: Vec::new(),
        env_remove: Vec::new(),
        dir: None,
        stdin: Vec::new(),
        contact: Moment::now(),
        contact_max: Duration::from_millis(contact_max_millis.parse()?),
        line_bytes_max: 1000,
    };
    let mut supervised = Supervised::spawn(Path::new("/proc/self/exe"), &["supervise"], &spec).await?;
    let control = supervised.control();
    tokio::spawn(async move {
        loop {
            control.contact(Moment::now());
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
