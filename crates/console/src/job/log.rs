//! What a try of a job wrote, from its end: live, and bounded.

use crate::oops::Oops;
use crate::text::{cut, visible};
use crate::visitor::Visitor;
use crate::words::{count, counted};
use axum::extract::Path;
use axum::response::{Html, IntoResponse as _, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::graph::record::{JobRecord, LogLine, LogPiece};
use tidemill_wire::graphs::ReadLogs;

/// Lines of a page, and their characters together.
const LINES: usize = 400;
const CHARS: usize = 60_000;
/// Characters of a line.
const LINE_CHARS: usize = 2_000;
/// Pieces that one look reads: a piece has at least a line.
const PIECES: u16 = 100;
/// Pieces that one look for news reads.
const NEW_PIECES: u16 = 20;

/// Which output to show.
pub(super) struct Wanted {
    /// The try.
    pub(super) attempt: i32,
    after: Option<i32>,
}

impl Wanted {
    /// As the address says; the last try where it says nothing.
    pub(super) fn of(uri: &Uri, tries: i32) -> Self {
        let mut wanted = Self { attempt: tries.max(1), after: None };
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "attempt" => {
                    let named = value.parse().ok().filter(|attempt| *attempt > 0);
                    wanted.attempt = named.unwrap_or(wanted.attempt);
                }
                "after" => wanted.after = value.parse().ok().filter(|after| *after >= 0),
                _ => {}
            }
        }
        wanted
    }

    /// The last of it.
    pub(super) async fn read(&self, client: &Client, job: &JobRecord) -> Result<Vec<LogPiece>, Error> {
        let last = ReadLogs { attempt: Some(self.attempt), last: Some(PIECES), ..ReadLogs::default() };
        ask(client, &job.job_id, &last).await
    }
}

/// Pieces of output; none where the try does not exist yet.
async fn ask(client: &Client, job: &str, asked: &ReadLogs) -> Result<Vec<LogPiece>, Error> {
    match client.job_logs(job, asked).await {
        Ok(logs) => Ok(logs.pieces),
        Err(Error::Refused { status, problem })
            if status.as_u16() == 404 && problem.code == "unknown_task" =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The lines that a page has room for, from the end, each with its name; and how many are left out.
fn fitting(pieces: &[LogPiece]) -> (Vec<(String, &LogLine)>, usize) {
    let all = pieces.iter().flat_map(|piece| {
        piece.lines.iter().enumerate().map(move |(place, line)| (format!("{}.{place}", piece.seq), line))
    });
    let all: Vec<_> = all.collect();
    let mut room = CHARS;
    let mut fits = |line: &LogLine| {
        let chars = line.text.len().min(LINE_CHARS) + 1;
        let fits = chars <= room;
        room = room.saturating_sub(chars);
        fits
    };
    let kept = all.iter().rev().take(LINES).take_while(|(_, line)| fits(line)).count();
    let left_out = all.len() - kept;
    (all.into_iter().skip(left_out).collect(), left_out)
}

/// The output on the page of its job.
pub(super) fn panel(job: &JobRecord, wanted: &Wanted, pieces: &[LogPiece]) -> Markup {
    let (lines, _) = fitting(pieces);
    let is_cut = lines.first().is_some_and(|(name, _)| name != "0.0");
    let last = pieces.last().map_or(-1, |piece| piece.seq);
    let feed = format!("/jobs/{}/tail?attempt={}&after=", job.job_id, wanted.attempt);
    html! {
        section.panel #log data-live {
            header { h2 { "Output" } span.dim.small { "of try " (wanted.attempt) }
                a.more href={ "/v1/jobs/" (job.job_id) "/logs?attempt=" (wanted.attempt) } {
                    "From the beginning, as JSON" } }
            @if is_cut {
                p.empty.small { "The last " (counted(i64::try_from(lines.len()).unwrap_or(0), "line", "lines"))
                    ". All of it: " code { "tidemill graph logs " (job.run_id) " " (job.name) } }
            }
            @if lines.is_empty() { p.empty { (nothing(job)) } }
            ol.events.output tabindex="0" aria-label="Lines of output" data-tail=(feed) data-after=(last) {
                @for (name, line) in &lines { (row(name, line)) }
            }
        }
    }
}

fn nothing(job: &JobRecord) -> &'static str {
    if job.code.is_terminal() { "It wrote nothing." } else { "It wrote nothing yet." }
}

/// The lines that are new since the page was made: rows alone, for the script.
pub(super) async fn tail(visitor: Visitor, Path(job): Path<String>) -> Result<Response, Oops> {
    let wanted = Wanted::of(&visitor.uri, 1);
    let asked = ReadLogs {
        attempt: Some(wanted.attempt),
        after: wanted.after,
        limit: Some(NEW_PIECES),
        ..ReadLogs::default()
    };
    let pieces = ask(&visitor.client, &job, &asked).await?;
    let (lines, left_out) = fitting(&pieces);
    let last = pieces.last().map_or(wanted.after.unwrap_or(-1), |piece| piece.seq);
    let more = pieces.len() == usize::from(NEW_PIECES);
    let rows = html! {
        ol data-after=(last) data-more=[more.then_some("yes")] {
            @if left_out > 0 {
                li.jump { (count(i64::try_from(left_out).unwrap_or(i64::MAX)))
                    " lines between are not shown: they came faster than this page" }
            }
            @for (name, line) in &lines { (row(name, line)) }
        }
    };
    Ok(Html(rows.into_string()).into_response())
}

fn row(name: &str, line: &LogLine) -> Markup {
    let (text, more) = cut(&line.text, LINE_CHARS);
    html! {
        li.stderr[line.stream == "stderr"] data-key=(name) {
            span.message { bdi { (visible(text)) } @if more { "…" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(seq: i32, lines: usize, text: &str) -> LogPiece {
        let line = LogLine { stream: "stdout".to_owned(), text: text.to_owned() };
        LogPiece { seq, lines: vec![line; lines] }
    }

    #[test]
    fn a_page_has_the_last_lines_that_fit() {
        let short = [piece(3, 300, "a"), piece(4, 200, "b")];
        let (lines, left_out) = fitting(&short);
        assert_eq!((lines.len(), left_out), (400, 100));
        assert_eq!((lines[0].0.as_str(), lines[399].0.as_str()), ("3.100", "4.199"));
        let long = [piece(0, 100, &"x".repeat(250_000))];
        let (lines, left_out) = fitting(&long);
        assert_eq!((lines.len(), left_out), (29, 71));
        assert_eq!(fitting(&[]).1, 0);
    }

    #[test]
    fn a_line_is_escaped_and_what_a_terminal_would_obey_is_shown() {
        let line = LogLine { stream: "stderr".to_owned(), text: "<b>\u{1b}[2J\r".to_owned() };
        let row = row("0.0", &line).into_string();
        assert!(row.contains("&lt;b&gt;⟨ESC⟩[2J⟨CR⟩") && row.contains("class=\"stderr\""), "{row}");
    }
}
