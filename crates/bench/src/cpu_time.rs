//! Processor time of processes, read from `/proc`.

use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};

/// Unit of the times in `/proc` on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// Background work has ended when the server used no more than this in [`IDLE_TIME`].
const IDLE_CPU_SECS: f64 = 0.02;
const IDLE_TIME: Duration = Duration::from_secs(1);
/// Time limit for the server to become idle.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);

/// Returns user and system time of the server and of all its processes, also of those that have ended.
pub(crate) fn server_secs(server: u32) -> Result<f64> {
    let postmaster = CpuTime::of(server).context("the server must run on this machine")?;
    let mut ticks = postmaster.own_ticks + postmaster.ended_children_ticks;
    for entry in std::fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse() else { continue };
        // A process that has ended meanwhile is counted by its parent.
        if let Some(child) = CpuTime::of(process).filter(|child| child.parent == server) {
            ticks += child.own_ticks;
        }
    }
    Ok(ticks / TICKS_PER_SECOND)
}

/// Waits until the server uses no more processor time, and returns the total.
pub(crate) async fn wait_until_idle(server: u32) -> Result<f64> {
    let deadline = Instant::now() + IDLE_TIMEOUT;
    let mut before = server_secs(server)?;
    loop {
        tokio::time::sleep(IDLE_TIME).await;
        let now = server_secs(server)?;
        if now - before <= IDLE_CPU_SECS {
            return Ok(now);
        }
        before = now;
        (Instant::now() < deadline)
            .then_some(())
            .context("the server did not become idle within two minutes")?;
    }
}

/// Processor time of one process.
#[derive(Debug, PartialEq)]
pub(crate) struct CpuTime {
    pub(crate) parent: u32,
    own_ticks: f64,
    ended_children_ticks: f64,
}

impl CpuTime {
    /// Returns the time of a process, or `None` if it has ended.
    pub(crate) fn of(process: u32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// Returns the time of the process itself in seconds.
    pub(crate) fn own_secs(&self) -> f64 {
        self.own_ticks / TICKS_PER_SECOND
    }

    fn read(stat: &str) -> Option<Self> {
        // The name of the program is in parentheses and may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own_ticks: number(11)? + number(12)?,
            ended_children_ticks: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_spaces_in_the_name_is_read() {
        let text = "77 (postgres: a b) S 42 77 77 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0";
        assert_eq!(
            CpuTime::read(text),
            Some(CpuTime { parent: 42, own_ticks: 30.0, ended_children_ticks: 70.0 })
        );
        assert_eq!(CpuTime::read("nonsense"), None);
    }
}
