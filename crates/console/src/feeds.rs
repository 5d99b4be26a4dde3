//! Feeds: how far each is, when it comes in next, what it is missing, and what prices its stones.

mod one;
mod rules;
mod verbs;

use crate::Console;
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::overview::is_old;
use crate::text::says;
use crate::time::ago;
use crate::visitor::Visitor;
use crate::words::{count, first, label, others, sync_progress};
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use maud::html;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/feeds", get(page))
        .route("/feeds/{feed}", get(one::page))
        .route("/feeds/{feed}/sync", post(verbs::sync))
        .route("/feeds/{feed}/pause", post(verbs::pause))
        .route("/feeds/{feed}/resume", post(verbs::resume))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let feeds = visitor.client.feeds().await?.items;
    let body = html! {
        div.head { h1 { "Feeds" } }
        div.panel #list data-live {
            @if feeds.is_empty() {
                p.empty { "No feed is kept. Add one: "
                    code { "tidemill feed add NAME --endpoint URL --username NAME --password-env VAR" }
                    ", or look at the demo: " code { "tidemill demo --serve" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Feed" } th { "Project" } th { "Watermark" } th { "Answers" }
                        th { "Last sync" } th.wide { "Partitions" } th.num { "Stones" } } }
                    tbody {
                        @for line in first(&feeds) {
                            tr data-key=(line.feed.feed.feed) {
                                td { a href={ "/feeds/" (line.feed.feed.feed) } { (says(&line.feed.feed.feed))
                                    } }
                                td { (says(&line.feed.feed.project_id)) }
                                td.nowrap.warn[is_old(line, &visitor)] {
                                    @if let Some(watermark) = &line.feed.watermark {
                                        (ago(watermark.last_updated_at, visitor.now)) }
                                    @else { "none yet" } }
                                td { (one::answers(&line.feed)) }
                                @if let Some(sync) = &line.last_sync {
                                    td { a href={ "/runs/" (sync.ops_run_id.in_path()) } { (label(sync.state.as_str()))
                                        } " " span.dim { (ago(sync.started_at, visitor.now)) } }
                                    td.wide { (sync_progress(sync)) }
                                    td.num { (count(sync.predicted)) }
                                } @else { td.dim { "never" } td.wide {} td {} }
                            }
                        }
                    }
                } }
                (others(feeds.len(), "tidemill feed list"))
            }
        }
    };
    Ok(Page::new(&visitor, Place::Feeds, "Feeds").live().show(&body))
}
