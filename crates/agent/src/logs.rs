//! Ships what commands wrote: in pieces with numbers, each of which stays the same until the server has it.

use crate::door::Trouble;
use crate::executor::Executor;
use crate::place::{Place, Shipped};
use crate::run::Agent;
use crate::wait::Backoff;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::time::Duration;
use tidemill_core::limits;
use tidemill_supervisor::Lasting;
use tidemill_wire::agents::{LogLine, Taken};
use tracing::warn;

/// Lines of one piece.
const LINES_MAX: usize = 5_000;
/// How often to look for new lines while a command runs.
const LOOK: Duration = Duration::from_millis(300);

/// Whether more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// The command runs: a line without an end may grow.
    Grows,
    /// The command is over.
    Ended,
}

/// Ships as the command writes, for ever.
pub(crate) async fn ship_on<E: Executor>(agent: &Agent<E>, place: &Place) {
    loop {
        match ship(agent, place, Log::Grows).await {
            Ok(Taken::Stale) => return std::future::pending().await,
            Ok(Taken::Applied | Taken::Duplicate) => {}
            Err(error) => warn!("the log of task {} could not be read: {error}", place.task_id()),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Ships all there is; `Stale` where the server does not want it.
pub(crate) async fn ship<E: Executor>(agent: &Agent<E>, place: &Place, log: Log) -> io::Result<Taken> {
    let mut backoff = Backoff::new();
    let mut is_refused = false;
    loop {
        let shipped = agent.shipped(place)?;
        let Some((piece, lines)) = next(place, shipped, log)? else { return Ok(Taken::Applied) };
        if piece != shipped {
            agent.note_shipped(place, piece);
        }
        let lines = if is_refused { vec![missing(lines.len())] } else { lines };
        match agent.door.log(place.task_id(), piece.seq, lines).await {
            Ok(Taken::Stale) => return Ok(Taken::Stale),
            Ok(Taken::Applied | Taken::Duplicate) => {
                agent.note_shipped(place, piece.after());
                is_refused = false;
                backoff.reset();
            }
            Err(Trouble::Bad(words)) => {
                // It would be refused for ever: a line in its place says so, and where even that is refused, nothing.
                warn!("the server cannot use a piece of the log of task {}: {words}", place.task_id());
                if is_refused {
                    agent.note_shipped(place, piece.after());
                }
                is_refused = !is_refused;
            }
            Err(trouble) => {
                if agent.heed(&trouble) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

/// What stands in the place of lines that the server does not take.
fn missing(lines: usize) -> LogLine {
    let text = format!("{lines} lines of output are missing here: the server did not take them");
    LogLine { stream: "stderr".to_owned(), text }
}

/// The next piece: the one that was on its way, or the lines that came since.
fn next(place: &Place, shipped: Shipped, log: Log) -> io::Result<Option<(Shipped, Vec<LogLine>)>> {
    let mut file = match File::open(Lasting::new(place.dir()).log_path()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let longest = limits::LOG_CHUNK_BYTES_MAX as u64;
    let most = shipped.to.map_or(longest, |to| to.saturating_sub(shipped.from));
    file.seek(SeekFrom::Start(shipped.from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    if shipped.to.is_none() {
        let whole = lines_end(&bytes);
        // A last line without an end was cut off when its supervisor was killed.
        if whole > 0 || log == Log::Grows {
            bytes.truncate(whole);
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let to = shipped.from + bytes.len() as u64;
    Ok(Some((Shipped { to: Some(to), ..shipped }, lines(&bytes))))
}

/// Where the last whole line ends that still fits.
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
    // Not `lines`, which takes a carriage return for a part of the line end.
    text.strip_suffix('\n').unwrap_or(&text).split('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn text(piece: Option<(Shipped, Vec<LogLine>)>) -> (Shipped, Vec<String>) {
        let (shipped, lines) = piece.unwrap();
        (shipped, lines.into_iter().map(|line| format!("{}:{}", line.stream, line.text)).collect())
    }

    #[test]
    fn a_piece_stays_as_it_was_sent() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path().to_owned(), "a-001");
        place.make().unwrap();
        let log = Lasting::new(place.dir()).log_path();
        assert_eq!(next(&place, Shipped::default(), Log::Grows).unwrap(), None);
        fs::write(&log, "o one\ne two\r\nO thr").unwrap();
        let (sent, lines) = text(next(&place, Shipped::default(), Log::Grows).unwrap());
        assert_eq!(lines, ["stdout:one", "stderr:two\r"]);
        fs::write(&log, "o one\ne two\r\nO three\no and more\n").unwrap();
        // The answer was lost: the same piece goes out again, though there is more by now.
        assert_eq!(text(next(&place, sent, Log::Grows).unwrap()), (sent, lines));
        let after = Shipped { seq: 1, from: sent.to.unwrap(), to: None };
        let (sent, lines) = text(next(&place, after, Log::Grows).unwrap());
        assert_eq!(lines, ["stdout:three", "stdout:and more"]);
        let after = Shipped { seq: 2, from: sent.to.unwrap(), to: None };
        assert_eq!(next(&place, after, Log::Ended).unwrap(), None);
    }

    #[test]
    fn the_end_of_a_torn_log_is_shipped_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path().to_owned(), "a-001");
        place.make().unwrap();
        fs::write(Lasting::new(place.dir()).log_path(), "e tor").unwrap();
        assert_eq!(next(&place, Shipped::default(), Log::Grows).unwrap(), None);
        let (_, lines) = text(next(&place, Shipped::default(), Log::Ended).unwrap());
        assert_eq!(lines, ["stderr:tor"]);
    }
}
