//! The files that a job left.

use crate::text::{line_of, says};
use crate::words::count;
use maud::{Markup, html};
use tidemill_core::graph::record::{JobOutput, JobRecord};

/// Files that are shown.
const ROWS: usize = 100;

/// The panel; nothing where nothing was asked for.
pub(super) fn panel(outputs: &[JobOutput], job: &JobRecord) -> Markup {
    let all = i64::try_from(outputs.len()).unwrap_or(i64::MAX);
    let bytes: i64 = outputs.iter().map(|file| file.output.size_bytes).fold(0, i64::saturating_add);
    html! {
        @if !outputs.is_empty() {
            section.panel #outputs {
                header { h2 { "What it left" } span.dim.small { (crate::words::counted(all, "file", "files")) ", "
                    (count(bytes)) " bytes" } }
                div.scroll { table {
                    thead { tr { th { "Name" } th { "Path" } th.num { "Bytes" } th { "SHA-256" } } }
                    tbody { @for file in outputs.iter().take(ROWS) {
                        tr data-key=(file.output.path) {
                            td { (says(&file.output.name)) }
                            td { (line_of(&file.output.path, 120))
                                @if let Some(url) = &file.output.url { span.why { (line_of(url, 120)) } } }
                            td.num { (count(file.output.size_bytes)) }
                            td { code.hash title=(file.output.sha256) { (line_of(&file.output.sha256, 16)) } }
                        }
                    } }
                } }
                @if outputs.len() > ROWS { p.empty.small { "and " (outputs.len() - ROWS) " more: "
                    a href={ "/v1/jobs/" (job.job_id) } { "all of it, as JSON" } } }
            }
        }
    }
}
