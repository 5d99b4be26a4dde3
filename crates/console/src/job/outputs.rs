//! Panel with the output files of a job.

use crate::text::{clip, safe};
use crate::widgets::count;
use maud::{Markup, html};
use tidemill_core::graph::record::{JobOutput, JobRecord};

/// Maximum number of files shown.
const ROWS: usize = 100;

/// Renders the panel; nothing without files.
pub(super) fn panel(outputs: &[JobOutput], job: &JobRecord) -> Markup {
    let all = i64::try_from(outputs.len()).unwrap_or(i64::MAX);
    let bytes: i64 = outputs.iter().map(|file| file.output.size_bytes).fold(0, i64::saturating_add);
    html! {
        @if !outputs.is_empty() {
            section.panel #outputs {
                header { h2 { "Output files" } span.dim.small { (crate::widgets::pluralize(all, "file", "files")) ", "
                    (count(bytes)) " bytes" } }
                div.scroll { table {
                    thead { tr { th { "Name" } th { "Path" } th.num { "Bytes" } th { "SHA-256" } } }
                    tbody { @for file in outputs.iter().take(ROWS) {
                        tr data-key=(file.output.path) {
                            td { (safe(&file.output.name)) }
                            td { (clip(&file.output.path, 120))
                                @if let Some(url) = &file.output.url { span.why { (clip(url, 120)) } } }
                            td.num { (count(file.output.size_bytes)) }
                            td { code.hash title=(file.output.sha256) { (clip(&file.output.sha256, 16)) } }
                        }
                    } }
                } }
                @if outputs.len() > ROWS { p.empty.small { "and " (outputs.len() - ROWS) " more: "
                    a href={ "/v1/jobs/" (job.job_id) } { "complete list, as JSON" } } }
            }
        }
    }
}
