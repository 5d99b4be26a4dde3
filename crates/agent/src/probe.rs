//! The probe: a command that tells from time to time whether the database is under maintenance.

use crate::executor::Executor;
use crate::run::Agent;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tracing::{info, warn};

/// Characters of what the probe said.
const NOTE_CHARS_MAX: usize = 200;
/// Bytes of it that are read.
const SAID_BYTES_MAX: u64 = 4096;
/// The exit code that says that there is maintenance.
const MAINTENANCE: i32 = 3;

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Whether there is maintenance, and what the probe said.
    Known(bool, Option<String>),
    /// Nothing, for this reason.
    Unknown(String),
}

/// Looks for ever.
pub(crate) async fn probe<E: Executor>(agent: Arc<Agent<E>>) {
    let Some(probe) = agent.settings.probe.clone() else { return };
    let mut last = None;
    loop {
        match look(&probe.command, probe.every).await {
            Found::Known(maintenance, note) => {
                if last.replace(maintenance) != Some(maintenance) {
                    info!("the probe says: {}", if maintenance { "maintenance" } else { "no maintenance" });
                }
                if let Err(trouble) = agent.door.probe(maintenance, note).await {
                    if agent.heed(&trouble) {
                        return;
                    }
                    warn!("the server did not hear what the probe found: {}", trouble.words());
                }
            }
            // What is not known is no news: whatever was so stays so.
            Found::Unknown(why) => warn!("the probe found nothing out: {why}"),
        }
        tokio::time::sleep(probe.every).await;
    }
}

async fn look(command: &str, patience: Duration) -> Found {
    match tokio::time::timeout(patience, ask(command)).await {
        Err(_) => Found::Unknown(format!("it took longer than {} s", patience.as_secs())),
        Ok(Err(error)) => Found::Unknown(format!("it could not be asked: {error}")),
        Ok(Ok((Some(0), said))) => Found::Known(false, said),
        Ok(Ok((Some(MAINTENANCE), said))) => Found::Known(true, said),
        Ok(Ok((Some(code), _))) => Found::Unknown(format!("it ended with {code}")),
        Ok(Ok((None, _))) => Found::Unknown("it was killed".to_owned()),
    }
}

async fn ask(command: &str) -> io::Result<(Option<i32>, Option<String>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(SAID_BYTES_MAX).read_to_end(&mut said).await?;
    }
    let status = child.wait().await?;
    let said = String::from_utf8_lossy(&said);
    let note: String = said.lines().next().unwrap_or_default().trim().chars().take(NOTE_CHARS_MAX).collect();
    Ok((status.code(), (!note.is_empty()).then_some(note)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exit_codes_mean_what_they_mean() {
        let patience = Duration::from_secs(20);
        assert_eq!(look("exit 0", patience).await, Found::Known(false, None));
        let note = Some("backup until 8".to_owned());
        assert_eq!(look("echo backup until 8; exit 3", patience).await, Found::Known(true, note));
        assert_eq!(look("exit 1", patience).await, Found::Unknown("it ended with 1".to_owned()));
        let late = look("sleep 1000", Duration::from_millis(100)).await;
        assert!(matches!(late, Found::Unknown(why) if why.contains("longer")));
    }
}
