//! The test program: an agent that tests can kill, the supervisor of its commands, or a launch step.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tidemill_agent::{CommandsOnExit, ExitPolicy, IsolationMode, RetentionPolicy, Settings, UserRange, run};
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_supervisor::{launch, supervise_detached};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["supervise", "lasting"] => supervise_detached(&["supervise", "launch"]),
        ["supervise", "launch"] => launch(),
        ["agent", dir, server, store @ ..] => match agent(dir, server, store.first().copied()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(io::stderr(), "{error}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::from(2),
    }
}

#[tokio::main]
async fn agent(dir: &str, server: &str, store: Option<&str>) -> Result<(), Box<dyn Error>> {
    // Most tests write to files outside of the task, so isolation is off unless a test names it.
    let isolation = match std::env::var("TEST_ISOLATION").as_deref() {
        Ok("required") => IsolationMode::Required,
        Ok("auto") => IsolationMode::Auto,
        Ok(_) => return Err("unknown isolation".into()),
        Err(_) => IsolationMode::Off,
    };
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let hidden = path("TEST_HIDDEN");
    let settings = Settings {
        dir: PathBuf::from(dir),
        name: "test".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
        capacity: 8,
        secrets: path("TEST_SECRETS"),
        store: store.map(str::to_owned),
        retention: RetentionPolicy::default(),
        probe: None,
        exit_policy: ExitPolicy::Never,
        commands_on_exit: CommandsOnExit::Continue,
        grace: Duration::from_secs(5),
        isolation,
        task_users: UserRange::default(),
        hidden: hidden.into_iter().collect(),
        supervisor: PathBuf::from("/proc/self/exe"),
        supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
    };
    let options = HttpOptions { server: server.to_owned(), token: None, authorities: Vec::new() };
    let (sender, stop) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        let _ = sender.send(true);
        std::future::pending::<()>().await;
    });
    run(settings, Client::new(HttpTransport::new(options)?), stop).await?;
    Ok(())
}
