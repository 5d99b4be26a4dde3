//! The record of what people did.

use crate::fold;
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::{line_of, says};
use crate::time::ago;
use crate::visitor::Visitor;
use axum::response::Response;
use maud::html;
use tidemill_wire::access::ListAudit;

/// Lines of a page.
const ROWS: u16 = 100;

pub(crate) async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let after = form_urlencoded::parse(visitor.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .and_then(|(_, value)| value.parse().ok());
    let record =
        visitor.client.audit(&ListAudit { after, limit: Some(ROWS), ..ListAudit::default() }).await?;
    let body = html! {
        div.head { h1 { "Audit" }
            p.sub { "What people changed, the latest first. Lines are added, and never change." } }
        div.panel #audit data-live {
            @if record.items.is_empty() { p.empty { "Nobody has changed anything yet." } }
            @else {
                div.scroll { table {
                    thead { tr { th { "When" } th { "Who" } th { "What" } th { "To what" } th { "Project" }
                        th.wide { "From" } th.wide {} } }
                    tbody { @for audit in &record.items {
                        tr data-key=(audit.audit_id) {
                            td.nowrap { (ago(audit.at, visitor.now)) }
                            td { (says(&audit.who)) " " span.dim { (audit.role) } }
                            td { code { (says(&audit.action)) } }
                            td { @if let Some(subject) = &audit.subject { (line_of(subject, 80)) } }
                            td { @if let Some(project) = &audit.project_id { (says(project)) } }
                            td.wide { @if let Some(source) = &audit.source { (says(source)) } }
                            td.wide { (fold::within("Details", &audit.detail, None, 600)) }
                        }
                    } }
                } }
                @if let Some(next) = &record.next { nav.pages { a.button href={ "/audit?after=" (next) } {
                    "Older" } } }
            }
        }
    };
    Ok(Page::new(&visitor, Place::Audit, "Audit").show(&body))
}
