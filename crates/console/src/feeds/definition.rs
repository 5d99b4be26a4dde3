//! Panel of the definition of a feed: the table that it fills, how it is read, and the text of the file.

use crate::error_page::ErrorPage;
use crate::page_context::PageContext;
use crate::text::{cut, line, safe, visible_lines};
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::feed::Feed;
use tidemill_core::feed_definition::FeedDefinition;
use tidemill_core::records::FeedTablePlan;

/// Maximum number of characters of the file on the page.
const TEXT_CHARS_MAX: usize = 20_000;

pub(super) async fn panel(context: &PageContext, feed: &Feed) -> Result<Markup, ErrorPage> {
    let table = match context.client.feed_table(&feed.feed).await {
        Ok(table) => Ok(table),
        // The table cannot be compared: the page shows why, and the rest of the feed.
        Err(Error::Refused { problem, .. }) => Err(problem.message),
        Err(error) => return Err(error.into()),
    };
    let (text, is_cut) = cut(feed.definition_text().unwrap_or_default(), TEXT_CHARS_MAX);
    Ok(html! {
        section.panel #definition {
            header { h2 { "Definition" } span.dim.small { "the file that describes the feed" } }
            div.in {
                @match feed.definition() {
                    Some(Ok(definition)) => (facts(feed, &definition)),
                    Some(Err(error)) => p.bad { (line(&error)) },
                    None => {},
                }
                @match &table {
                    Ok(table) => (table_state(table)),
                    Err(reason) => p.bad { (line(reason)) },
                }
                p { "To change it, edit the file and apply it: " code { "tidemill feed apply FILE" } }
                details {
                    summary { "Text" }
                    pre { bdi { (visible_lines(text)) @if is_cut { "…" } } }
                    @if is_cut { p.dim.small { "Complete text: " code { "tidemill feed show " (feed.feed) } } }
                }
            }
        }
    })
}

fn facts(feed: &Feed, definition: &FeedDefinition) -> Markup {
    let cursor = definition.incremental.as_ref();
    html! {
        dl.facts {
            dt { "Table" } dd { code { (safe(&definition.into.table.to_string())) } }
            dt { "Paginator" } dd { (definition.paginator.word()) }
            dt { "Partitions" } dd { (line(&feed.partition_field().description())) }
            dt { "Changes" } dd { @match cursor {
                Some(cursor) => { "by " code { (safe(&cursor.cursor_path.to_string())) } },
                None => "every sync reads all records",
            } }
        }
    }
}

fn table_state(table: &FeedTablePlan) -> Markup {
    html! {
        @if table.problems.is_empty() && !table.statements.is_empty() {
            p.warn { @if table.exists { "The table lacks columns." } @else { "The table does not exist yet." }
                " Apply the definition again to change it." }
        }
        @for problem in &table.problems { p.bad { (line(problem)) } }
    }
}
