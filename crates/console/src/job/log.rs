//! Panel with the last output of an attempt, updated live.

use crate::error_page::ErrorPage;
use crate::page_context::PageContext;
use crate::text::{cut, visible};
use crate::widgets::{count, pluralize};
use axum::extract::Path;
use axum::response::{Html, IntoResponse as _, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::graph::record::{JobRecord, LogLine, LogPiece};
use tidemill_wire::graphs::ReadLogs;

/// Maximum number of lines on the page, and of their characters in total.
const LINES_MAX: usize = 400;
const CHARS_MAX: usize = 60_000;
/// Maximum length of a line.
const LINE_CHARS_MAX: usize = 2_000;
/// Log chunks per read; each chunk has at least one line.
const CHUNKS: u16 = 100;
/// Log chunks per live update.
const NEW_CHUNKS: u16 = 20;

/// Attempt and position of the output to show.
pub(super) struct LogSelection {
    pub(super) attempt: i32,
    after: Option<i32>,
}

impl LogSelection {
    /// Reads the selection from the address. The default is the last attempt.
    pub(super) fn from_uri(uri: &Uri, tries: i32) -> Self {
        let mut selection = Self { attempt: tries.max(1), after: None };
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "attempt" => {
                    let named = value.parse().ok().filter(|attempt| *attempt > 0);
                    selection.attempt = named.unwrap_or(selection.attempt);
                }
                "after" => selection.after = value.parse().ok().filter(|after| *after >= 0),
                _ => {}
            }
        }
        selection
    }

    /// Reads the last chunks.
    pub(super) async fn read(&self, client: &Client, job: &JobRecord) -> Result<Vec<LogPiece>, Error> {
        let last = ReadLogs { attempt: Some(self.attempt), last: Some(CHUNKS), ..ReadLogs::default() };
        read_chunks(client, &job.job_id, &last).await
    }
}

/// Reads log chunks. An attempt that does not exist yet has none.
async fn read_chunks(client: &Client, job: &str, params: &ReadLogs) -> Result<Vec<LogPiece>, Error> {
    match client.job_logs(job, params).await {
        Ok(logs) => Ok(logs.pieces),
        Err(Error::Refused { status, problem })
            if status.as_u16() == 404 && problem.code == "unknown_task" =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// The last lines that fit on the page, each with its key, and the number of omitted ones.
fn last_lines(pieces: &[LogPiece]) -> (Vec<(String, &LogLine)>, usize) {
    let all = pieces.iter().flat_map(|piece| {
        piece.lines.iter().enumerate().map(move |(index, line)| (format!("{}.{index}", piece.seq), line))
    });
    let all: Vec<_> = all.collect();
    let mut remaining = CHARS_MAX;
    let mut fits = |line: &LogLine| {
        let chars = line.text.len().min(LINE_CHARS_MAX) + 1;
        let fits = chars <= remaining;
        remaining = remaining.saturating_sub(chars);
        fits
    };
    let shown = all.iter().rev().take(LINES_MAX).take_while(|(_, line)| fits(line)).count();
    let omitted = all.len() - shown;
    (all.into_iter().skip(omitted).collect(), omitted)
}

pub(super) fn panel(job: &JobRecord, selection: &LogSelection, pieces: &[LogPiece]) -> Markup {
    let (lines, _) = last_lines(pieces);
    let is_cut = lines.first().is_some_and(|(name, _)| name != "0.0");
    let last = pieces.last().map_or(-1, |piece| piece.seq);
    let tail_url = format!("/jobs/{}/tail?attempt={}&after=", job.job_id, selection.attempt);
    html! {
        section.panel #log data-live {
            header { h2 { "Output" } span.dim.small { "of attempt " (selection.attempt) }
                a.more href={ "/v1/jobs/" (job.job_id) "/logs?attempt=" (selection.attempt) } {
                    "From the start, as JSON" } }
            @if is_cut {
                p.empty.small { "The last " (pluralize(i64::try_from(lines.len()).unwrap_or(0), "line", "lines"))
                    ". Complete output: " code { "tidemill graph logs " (job.run_id) " " (job.name) } }
            }
            @if lines.is_empty() { p.empty { (empty_text(job)) } }
            ol.events.output tabindex="0" aria-label="Lines of output" data-tail=(tail_url) data-after=(last) {
                @for (name, line) in &lines { (row(name, line)) }
            }
        }
    }
}

fn empty_text(job: &JobRecord) -> &'static str {
    if job.code.is_terminal() { "There was no output." } else { "There is no output yet." }
}

/// New lines since the page was rendered: only table rows, for the script.
pub(super) async fn tail(context: PageContext, Path(job): Path<String>) -> Result<Response, ErrorPage> {
    let selection = LogSelection::from_uri(&context.uri, 1);
    let params = ReadLogs {
        attempt: Some(selection.attempt),
        after: selection.after,
        limit: Some(NEW_CHUNKS),
        ..ReadLogs::default()
    };
    let pieces = read_chunks(&context.client, &job, &params).await?;
    let (lines, omitted) = last_lines(&pieces);
    let last = pieces.last().map_or(selection.after.unwrap_or(-1), |piece| piece.seq);
    let more = pieces.len() == usize::from(NEW_CHUNKS);
    let rows = html! {
        ol data-after=(last) data-more=[more.then_some("yes")] {
            @if omitted > 0 {
                li.jump { (count(i64::try_from(omitted).unwrap_or(i64::MAX)))
                    " lines are omitted: the output is faster than this page" }
            }
            @for (name, line) in &lines { (row(name, line)) }
        }
    };
    Ok(Html(rows.into_string()).into_response())
}

fn row(name: &str, line: &LogLine) -> Markup {
    let (text, more) = cut(&line.text, LINE_CHARS_MAX);
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
    fn page_shows_the_last_lines_that_fit() {
        let short = [piece(3, 300, "a"), piece(4, 200, "b")];
        let (lines, omitted) = last_lines(&short);
        assert_eq!((lines.len(), omitted), (400, 100));
        assert_eq!((lines[0].0.as_str(), lines[399].0.as_str()), ("3.100", "4.199"));
        let long = [piece(0, 100, &"x".repeat(250_000))];
        let (lines, omitted) = last_lines(&long);
        assert_eq!((lines.len(), omitted), (29, 71));
        assert_eq!(last_lines(&[]).1, 0);
    }

    #[test]
    fn line_is_escaped_with_control_characters_visible() {
        let line = LogLine { stream: "stderr".to_owned(), text: "<b>\u{1b}[2J\r".to_owned() };
        let row = row("0.0", &line).into_string();
        assert!(row.contains("&lt;b&gt;⟨ESC⟩[2J⟨CR⟩") && row.contains("class=\"stderr\""), "{row}");
    }
}
