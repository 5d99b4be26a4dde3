//! Feeds: the list, and one page per feed.

mod actions;
mod definition;
mod feed_page;
mod rules;

use crate::error_page::ErrorPage;
use crate::layout::{Page, Section};
use crate::overview::is_old;
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::sync::cursor;
use crate::text::safe;
use crate::time::ago;
use crate::widgets::{count, first_rows, label, omitted_rows, sync_progress};
use axum::response::Response;
use maud::html;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/feeds", page)
        .get("/feeds/{feed}", feed_page::page)
        .post("/feeds/{feed}/sync", actions::sync)
        .post("/feeds/{feed}/pause", actions::pause)
        .post("/feeds/{feed}/resume", actions::resume)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let feeds = context.client.feeds().await?.items;
    let body = html! {
        div.head { h1 { "Feeds" } }
        div.panel #list data-live {
            @if feeds.is_empty() {
                p.empty { "There are no feeds. Describe an API in a file: " code { "tidemill feed try URL" }
                    ", then " code { "tidemill feed apply FILE" }
                    ". Or try the demo: " code { "tidemill demo --serve" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Feed" } th { "Project" } th { "Watermark" } th { "Responds" }
                        th { "Last sync" } th.wide { "Partitions" } th.num { "Records" } } }
                    tbody {
                        @for line in first_rows(&feeds) {
                            tr data-key=(line.feed.feed.feed) {
                                td { a href={ "/feeds/" (line.feed.feed.feed) } { (safe(&line.feed.feed.feed))
                                    } }
                                td { (safe(&line.feed.feed.project_id)) }
                                td.nowrap.warn[is_old(line, &context)] {
                                    @if let Some(watermark) = &line.feed.watermark {
                                        (cursor(line.feed.feed.cursor_unit(), watermark.last_updated_at, context.now)) }
                                    @else { "none yet" } }
                                td { (feed_page::responds_label(&line.feed)) }
                                @if let Some(sync) = &line.last_sync {
                                    td { a href={ "/runs/" (sync.ops_run_id.in_path()) } { (label(sync.state.as_str()))
                                        } " " span.dim { (ago(sync.started_at, context.now)) } }
                                    td.wide { (sync_progress(sync)) }
                                    td.num { (count(sync.predicted)) }
                                } @else { td.dim { "never" } td.wide {} td {} }
                            }
                        }
                    }
                } }
                (omitted_rows(feeds.len(), "tidemill feed list"))
            }
        }
    };
    Ok(Page::new(&context, Section::Feeds, "Feeds").live().show(&body))
}
