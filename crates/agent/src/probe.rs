//! The probe: a command that tells from time to time whether the database is under maintenance.

use crate::executor::Executor;
use crate::run::Agent;
use rustix::process::{Pid, Signal, kill_process_group};
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

/// The processes of a probe, which are killed when nobody waits for them any more.
struct Group(Option<Pid>);

impl Group {
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails only if there is nothing left of it.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn ask(command: &str) -> io::Result<(Option<i32>, Option<String>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(SAID_BYTES_MAX).read_to_end(&mut said).await?;
    }
    let status = child.wait().await?;
    // Its number may be another's from here on.
    group.let_go();
    let said = String::from_utf8_lossy(&said);
    let note: String = said.lines().next().unwrap_or_default().trim().chars().take(NOTE_CHARS_MAX).collect();
    Ok((status.code(), (!note.is_empty()).then_some(note)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exit_codes_mean_what_they_mean() {
        let patience = Duration::from_mins(1);
        assert_eq!(look("exit 0", patience).await, Found::Known(false, None));
        let note = Some("backup until 8".to_owned());
        assert_eq!(look("echo backup until 8; exit 3", patience).await, Found::Known(true, note));
        assert_eq!(look("exit 1", patience).await, Found::Unknown("it ended with 1".to_owned()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", path.display());
        let late = look(&script, Duration::from_secs(10)).await;
        assert!(matches!(late, Found::Unknown(why) if why.contains("longer")));
        let pid = std::fs::read_to_string(path).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let begun = std::time::Instant::now();
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(" Z ")) {
            assert!(begun.elapsed() < patience, "what the probe started lives on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
