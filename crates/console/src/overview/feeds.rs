//! Panels of feeds and queues.

use crate::page_context::PageContext;
use crate::sync::cursor;
use crate::text::safe;
use crate::time::ago_or_none;
use crate::widgets::{count, first_rows, label, omitted_rows};
use maud::{Markup, html};
use tidemill_core::feed::CursorUnit;
use tidemill_core::limits::WATERMARK_AGE_SECS;
use tidemill_wire::feeds::FeedSummary;
use tidemill_wire::queues::QueueSummary;

/// Whether the watermark is older than the alert limit. A number has no age.
pub(crate) fn is_old(line: &FeedSummary, context: &PageContext) -> bool {
    if line.feed.feed.cursor_unit() == CursorUnit::Number {
        return false;
    }
    let limit = i64::try_from(WATERMARK_AGE_SECS).unwrap_or(i64::MAX);
    let at = line.feed.watermark.as_ref().map(|watermark| watermark.last_updated_at);
    at.is_none_or(|at| (context.now - at).num_seconds() > limit)
}

/// Renders the panel of feeds.
pub(super) fn feeds(context: &PageContext, feeds: &[FeedSummary]) -> Markup {
    html! {
        section.panel #feeds {
            header { h2 { "Feeds" } a.more href="/feeds" { "All" } }
            @if feeds.is_empty() {
                p.empty { "There are no feeds. Describe one in a file: " code { "tidemill feed try URL" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Feed" } th { "Watermark" } th { "Last sync" } } }
                    tbody {
                        @for line in first_rows(feeds) {
                            tr data-key=(line.feed.feed.feed) {
                                td { a href={ "/feeds/" (line.feed.feed.feed) } { (safe(&line.feed.feed.feed))
                                    } }
                                td.nowrap.warn[is_old(line, context)] {
                                    @if let Some(watermark) = &line.feed.watermark {
                                        (cursor(line.feed.feed.cursor_unit(), watermark.last_updated_at, context.now)) }
                                    @else { "none yet" } }
                                td { @if let Some(sync) = &line.last_sync {
                                        a href={ "/runs/" (sync.ops_run_id.in_path()) } { (label(sync.state.as_str())) }
                                    } @else { span.dim { "never" } } }
                            }
                        }
                    }
                } }
                (omitted_rows(feeds.len(), "tidemill feed list"))
            }
        }
    }
}

/// Renders the panel of queues.
pub(super) fn queues(context: &PageContext, queues: &[QueueSummary]) -> Markup {
    html! {
        section.panel #queues {
            header { h2 { "Queues" } a.more href="/queues" { "All" } }
            div.scroll { table {
                thead { tr { th { "Queue" } th.num { "Waiting" } th.num { "In flight" } th.num { "Dead" }
                    th.num { "Oldest" } } }
                tbody {
                    @for line in queues {
                        tr data-key=(line.settings.queue) {
                            td { a href={ "/queues/" (line.settings.queue) } { (safe(&line.settings.queue)) }
                                }
                            td.num { (count(line.depth.waiting)) }
                            td.num { (count(line.depth.in_flight)) }
                            td.num.bad[line.depth.dead > 0] { (count(line.depth.dead)) }
                            td.num { (ago_or_none(line.depth.oldest_at, context.now)) }
                        }
                    }
                }
            } }
        }
    }
}
