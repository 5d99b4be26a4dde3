//! Ships the logs of commands in numbered chunks. A chunk is repeated unchanged until the server has it.

use crate::backoff::Backoff;
use crate::executor::Executor;
use crate::run::Agent;
use crate::server_client::RequestError;
use crate::task_dir::{LogPosition, TaskDir};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::time::Duration;
use tidemill_core::limits;
use tidemill_supervisor::DetachedCommand;
use tidemill_wire::agents::{LogLine, ReportOutcome};
use tracing::warn;

/// Maximum number of lines per chunk.
const LINES_MAX: usize = 5_000;
/// Interval of the check for new lines while a command runs.
const SHIP_INTERVAL: Duration = Duration::from_millis(300);

/// Whether the command may still write to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogState {
    /// An incomplete last line may still grow.
    Growing,
    Ended,
}

/// Ships new lines while the command runs; never returns.
pub(crate) async fn ship_continuously<E: Executor>(agent: &Agent<E>, task_dir: &TaskDir) {
    loop {
        match ship(agent, task_dir, LogState::Growing).await {
            Ok(ReportOutcome::Stale) => return std::future::pending().await,
            Ok(ReportOutcome::Applied | ReportOutcome::Duplicate) => {}
            Err(error) => warn!("could not read the log of task {}: {error}", task_dir.task_id()),
        }
        tokio::time::sleep(SHIP_INTERVAL).await;
    }
}

/// Ships all new lines; returns `Stale` if the task is no longer assigned to this agent.
pub(crate) async fn ship<E: Executor>(
    agent: &Agent<E>,
    task_dir: &TaskDir,
    log: LogState,
) -> io::Result<ReportOutcome> {
    let mut backoff = Backoff::new();
    let mut is_rejected = false;
    loop {
        let position = agent.log_position(task_dir)?;
        let Some((chunk, lines)) = next_chunk(task_dir, position, log)? else {
            return Ok(ReportOutcome::Applied);
        };
        if chunk != position {
            agent.save_log_position(task_dir, chunk);
        }
        let lines = if is_rejected { vec![placeholder(lines.len())] } else { lines };
        match agent.server.log(task_dir.task_id(), chunk.seq, lines).await {
            Ok(ReportOutcome::Stale) => return Ok(ReportOutcome::Stale),
            Ok(ReportOutcome::Applied | ReportOutcome::Duplicate) => {
                agent.save_log_position(task_dir, chunk.after());
                is_rejected = false;
                backoff.reset();
            }
            Err(RequestError::Rejected(message)) => {
                // The server would always reject it. A placeholder line replaces the chunk. If the server rejects
                // that line too, the chunk is skipped.
                warn!("the server rejected a part of the log of task {}: {message}", task_dir.task_id());
                if is_rejected {
                    agent.save_log_position(task_dir, chunk.after());
                }
                is_rejected = !is_rejected;
            }
            Err(error) => {
                if agent.end_if_superseded(&error) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

/// Replacement for lines that the server rejected.
fn placeholder(lines: usize) -> LogLine {
    let text = format!("{lines} lines of output are missing here because the server rejected them");
    LogLine { stream: "stderr".to_owned(), text }
}

/// Reads the next chunk: the one that was sent but not confirmed, or new lines.
fn next_chunk(
    task_dir: &TaskDir,
    position: LogPosition,
    log: LogState,
) -> io::Result<Option<(LogPosition, Vec<LogLine>)>> {
    let mut file = match File::open(DetachedCommand::new(task_dir.path()).log_path()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes_max = limits::LOG_CHUNK_BYTES_MAX as u64;
    let length = position.to.map_or(bytes_max, |to| to.saturating_sub(position.from));
    file.seek(SeekFrom::Start(position.from))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    if position.to.is_none() {
        let complete = lines_end(&bytes);
        // An incomplete last line of an ended log was truncated when its supervisor was killed.
        if complete > 0 || log == LogState::Growing {
            bytes.truncate(complete);
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let to = position.from + bytes.len() as u64;
    Ok(Some((LogPosition { to: Some(to), ..position }, lines(&bytes))))
}

/// Offset after the last complete line within the line limit.
fn lines_end(bytes: &[u8]) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.take(LINES_MAX).last().map_or(0, |(end, _)| end + 1)
}

fn lines(bytes: &[u8]) -> Vec<LogLine> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let stream = if line.starts_with(['e', 'E']) { "stderr" } else { "stdout" };
        LogLine { stream: stream.to_owned(), text: line.get(2..).unwrap_or_default().to_owned() }
    };
    // Not `lines`, which would remove a carriage return before the line feed.
    text.strip_suffix('\n').unwrap_or(&text).split('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn text(chunk: Option<(LogPosition, Vec<LogLine>)>) -> (LogPosition, Vec<String>) {
        let (position, lines) = chunk.unwrap();
        (position, lines.into_iter().map(|line| format!("{}:{}", line.stream, line.text)).collect())
    }

    #[test]
    fn unconfirmed_chunk_is_repeated_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let task_dir = TaskDir::new(dir.path().to_owned(), "a-001");
        task_dir.create().unwrap();
        let log = DetachedCommand::new(task_dir.path()).log_path();
        assert_eq!(next_chunk(&task_dir, LogPosition::default(), LogState::Growing).unwrap(), None);
        fs::write(&log, "o one\ne two\r\nO thr").unwrap();
        let (sent, lines) = text(next_chunk(&task_dir, LogPosition::default(), LogState::Growing).unwrap());
        assert_eq!(lines, ["stdout:one", "stderr:two\r"]);
        fs::write(&log, "o one\ne two\r\nO three\no and more\n").unwrap();
        // The response was lost: the same chunk is sent again, although there are more lines now.
        assert_eq!(text(next_chunk(&task_dir, sent, LogState::Growing).unwrap()), (sent, lines));
        let after = LogPosition { seq: 1, from: sent.to.unwrap(), to: None };
        let (sent, lines) = text(next_chunk(&task_dir, after, LogState::Growing).unwrap());
        assert_eq!(lines, ["stdout:three", "stdout:and more"]);
        let after = LogPosition { seq: 2, from: sent.to.unwrap(), to: None };
        assert_eq!(next_chunk(&task_dir, after, LogState::Ended).unwrap(), None);
    }

    #[test]
    fn incomplete_last_line_is_shipped_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let task_dir = TaskDir::new(dir.path().to_owned(), "a-001");
        task_dir.create().unwrap();
        fs::write(DetachedCommand::new(task_dir.path()).log_path(), "e tor").unwrap();
        assert_eq!(next_chunk(&task_dir, LogPosition::default(), LogState::Growing).unwrap(), None);
        let (_, lines) = text(next_chunk(&task_dir, LogPosition::default(), LogState::Ended).unwrap());
        assert_eq!(lines, ["stderr:tor"]);
    }
}
