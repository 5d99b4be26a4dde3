//! The page that shows the audit log.

use crate::error_page::ErrorPage;
use crate::json_view;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::text::{clip, safe};
use crate::time::ago;
use axum::response::Response;
use maud::html;
use tidemill_wire::access::ListAudit;

const ROWS: u16 = 100;

pub(crate) async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let after = form_urlencoded::parse(context.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .and_then(|(_, value)| value.parse().ok());
    let record =
        context.client.audit(&ListAudit { after, limit: Some(ROWS), ..ListAudit::default() }).await?;
    let body = html! {
        div.head { h1 { "Audit" }
            p.sub { "Privileged calls, newest first. Entries cannot be changed, and are sealed in a hash chain." } }
        div.panel #audit data-live {
            @if record.items.is_empty() { p.empty { "There are no changes yet." } }
            @else {
                div.scroll { table {
                    thead { tr { th { "Time" } th { "User" } th { "Action" } th { "Outcome" } th { "Object" }
                        th { "Project" } th.wide { "Address" } th.wide { "Seal" } th.wide {} } }
                    tbody { @for audit in &record.items {
                        tr data-key=(audit.audit_id) {
                            td.nowrap { (ago(audit.at, context.now)) }
                            td { (safe(&audit.who)) " " span.dim { (audit.role) } }
                            td { code { (safe(&audit.action)) } }
                            td { (audit.outcome) }
                            td { @if let Some(subject) = &audit.subject { (clip(subject, 80)) } }
                            td { @if let Some(project) = &audit.project_id { (safe(project)) } }
                            td.wide { @if let Some(source) = &audit.source { (safe(source)) } }
                            td.wide { @if let Some(seal_no) = audit.seal_no { (seal_no) }
                                @else { span.dim { "not sealed yet" } } }
                            td.wide { (json_view::truncated("Details", &audit.detail, None, 600)) }
                        }
                    } }
                } }
                @if let Some(next) = &record.next { nav.pages { a.button href={ "/audit?after=" (next) } {
                    "Older" } } }
            }
        }
    };
    Ok(Page::new(&context, Section::Audit, "Audit").show(&body))
}
