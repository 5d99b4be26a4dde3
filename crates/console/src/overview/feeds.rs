//! Feeds and queues, a line each.

use crate::text::says;
use crate::time::{ago, ago_or_none};
use crate::visitor::Visitor;
use crate::words::{count, first, label, others};
use maud::{Markup, html};
use tidemill_core::limits::WATERMARK_AGE_SECS;
use tidemill_wire::feeds::FeedLine;
use tidemill_wire::queues::QueueLine;

/// Whether a watermark is older than it should be.
pub(crate) fn is_old(line: &FeedLine, visitor: &Visitor) -> bool {
    let limit = i64::try_from(WATERMARK_AGE_SECS).unwrap_or(i64::MAX);
    let at = line.feed.watermark.as_ref().map(|watermark| watermark.last_updated_at);
    at.is_none_or(|at| (visitor.now - at).num_seconds() > limit)
}

/// How far each feed is.
pub(super) fn feeds(visitor: &Visitor, feeds: &[FeedLine]) -> Markup {
    html! {
        section.panel #feeds {
            header { h2 { "Feeds" } a.more href="/feeds" { "All" } }
            @if feeds.is_empty() {
                p.empty { "No feed is kept. Add one: " code { "tidemill feed add NAME --endpoint URL" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Feed" } th { "Watermark" } th { "Last sync" } } }
                    tbody {
                        @for line in first(feeds) {
                            tr data-key=(line.feed.feed.feed) {
                                td { a href={ "/feeds/" (line.feed.feed.feed) } { (says(&line.feed.feed.feed))
                                    } }
                                td.nowrap.warn[is_old(line, visitor)] {
                                    @if let Some(watermark) = &line.feed.watermark {
                                        (ago(watermark.last_updated_at, visitor.now)) }
                                    @else { "none yet" } }
                                td { @if let Some(sync) = &line.last_sync {
                                        a href={ "/runs/" (sync.ops_run_id.in_path()) } { (label(sync.state.as_str())) }
                                    } @else { span.dim { "never" } } }
                            }
                        }
                    }
                } }
                (others(feeds.len(), "tidemill feed list"))
            }
        }
    }
}

/// How deep each queue is.
pub(super) fn queues(visitor: &Visitor, queues: &[QueueLine]) -> Markup {
    html! {
        section.panel #queues {
            header { h2 { "Queues" } a.more href="/queues" { "All" } }
            div.scroll { table {
                thead { tr { th { "Queue" } th.num { "Waiting" } th.num { "In flight" } th.num { "Dead" }
                    th.num { "Oldest" } } }
                tbody {
                    @for line in queues {
                        tr data-key=(line.settings.queue) {
                            td { a href={ "/queues/" (line.settings.queue) } { (says(&line.settings.queue)) }
                                }
                            td.num { (count(line.depth.waiting)) }
                            td.num { (count(line.depth.in_flight)) }
                            td.num.bad[line.depth.dead > 0] { (count(line.depth.dead)) }
                            td.num { (ago_or_none(line.depth.oldest_at, visitor.now)) }
                        }
                    }
                }
            } }
        }
    }
}
