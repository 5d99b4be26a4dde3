//! The probe: runs a command periodically to find out whether the database is under maintenance.

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

/// Maximum length of the reported note.
const NOTE_CHARS_MAX: usize = 200;
/// Maximum number of output bytes that are read.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Exit code of the probe during maintenance.
const MAINTENANCE: i32 = 3;

/// Outcome of one run of the probe.
#[derive(Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// Whether there is maintenance, and the first line of output.
    Known(bool, Option<String>),
    /// The reason why the probe was inconclusive.
    Unknown(String),
}

/// Runs the probe until the agent is superseded.
pub(crate) async fn probe<E: Executor>(agent: Arc<Agent<E>>) {
    let Some(probe) = agent.settings.probe.clone() else { return };
    let mut last = None;
    loop {
        match run_probe(&probe.command, probe.every).await {
            ProbeOutcome::Known(maintenance, note) => {
                if last.replace(maintenance) != Some(maintenance) {
                    info!("probe result: {}", if maintenance { "maintenance" } else { "no maintenance" });
                }
                if let Err(error) = agent.server.probe(maintenance, note).await {
                    if agent.end_if_superseded(&error) {
                        return;
                    }
                    warn!("could not report the probe result: {}", error.message());
                }
            }
            // An inconclusive probe keeps the previous state.
            ProbeOutcome::Unknown(why) => warn!("the probe was inconclusive: {why}"),
        }
        tokio::time::sleep(probe.every).await;
    }
}

async fn run_probe(command: &str, timeout: Duration) -> ProbeOutcome {
    match tokio::time::timeout(timeout, run_command(command)).await {
        Err(_) => ProbeOutcome::Unknown(format!("it took longer than {} s", timeout.as_secs())),
        Ok(Err(error)) => ProbeOutcome::Unknown(format!("it could not be executed: {error}")),
        Ok(Ok((Some(0), note))) => ProbeOutcome::Known(false, note),
        Ok(Ok((Some(MAINTENANCE), note))) => ProbeOutcome::Known(true, note),
        Ok(Ok((Some(code), _))) => ProbeOutcome::Unknown(format!("it ended with exit code {code}")),
        Ok(Ok((None, _))) => ProbeOutcome::Unknown("it was killed".to_owned()),
    }
}

/// The process group of a probe, which is killed on drop.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails only if the group has no process.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn run_command(command: &str) -> io::Result<(Option<i32>, Option<String>)> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = ProcessGroup(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(OUTPUT_BYTES_MAX).read_to_end(&mut output).await?;
    }
    let status = child.wait().await?;
    // From here on its process id may be reused.
    group.disarm();
    let output = String::from_utf8_lossy(&output);
    let note: String =
        output.lines().next().unwrap_or_default().trim().chars().take(NOTE_CHARS_MAX).collect();
    Ok((status.code(), (!note.is_empty()).then_some(note)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn exit_codes_and_timeout_give_the_outcome() {
        let timeout = Duration::from_mins(1);
        assert_eq!(run_probe("exit 0", timeout).await, ProbeOutcome::Known(false, None));
        let note = Some("backup until 8".to_owned());
        assert_eq!(run_probe("echo backup until 8; exit 3", timeout).await, ProbeOutcome::Known(true, note));
        assert_eq!(
            run_probe("exit 1", timeout).await,
            ProbeOutcome::Unknown("it ended with exit code 1".to_owned())
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", path.display());
        let late = run_probe(&script, Duration::from_secs(10)).await;
        assert!(matches!(late, ProbeOutcome::Unknown(why) if why.contains("longer")));
        let pid = std::fs::read_to_string(path).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let started = std::time::Instant::now();
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(" Z ")) {
            assert!(started.elapsed() < timeout, "a child of the timed-out probe is alive");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
