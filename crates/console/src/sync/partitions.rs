//! Grid of a sync's partitions, coloured by state.

use crate::forms;
use crate::page_context::PageContext;
use crate::text::clip;
use crate::time::took;
use crate::widgets::{bar, count, label};
use maud::{Markup, html};
use tidemill_core::feed::PartitionField;
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Partition, SyncStatus};
use tidemill_core::shell::command;
use tidemill_core::sync::SyncState;

pub(super) fn grid(context: &PageContext, status: &SyncStatus, field: &PartitionField) -> Markup {
    let SyncStatus { sync, partitions, newer } = status;
    let may_retry = context.may_operate() && sync.state == SyncState::Failed && newer.is_none();
    let is_failed = |partition: &&Partition| partition.state == PartitionState::Failed;
    // A retry reads all failed partitions; the user only selects the one that restarts from its beginning.
    let retry_label = if partitions.iter().filter(is_failed).count() > 1 {
        "Retry all failed partitions, this one from its start"
    } else {
        "Retry from its start"
    };
    html! {
        div.partitions {
            @for partition in partitions {
                @let rejected = partition.rejected.max(partition.ledger.rejected_total());
                @let failed = partition.state == PartitionState::Failed;
                article id={ "partition-" (partition.partition_id) } class={ "partition p-" (partition.state) }
                    data-key=(partition.partition_id) {
                    header { span { (partition.partition_id) } (label(partition.state.as_str())) }
                    p.dim { (clip(&field.label(partition.range), 160)) }
                    @if partition.predicted > 0 {
                        p { (bar(partition.fetched, partition.predicted, "Read", class(partition.state))) }
                    }
                    p { (count(partition.fetched))
                        @if partition.predicted > 0 { " of " (count(partition.predicted)) } @else { " records" }
                        @if rejected > 0 { ", " span.bad { (count(rejected)) " rejected" }
                            }
                        @if let Some(took) = took(partition.first_page_at, partition.ended_at, context.now) {
                            span.dim { " · " (took) } } }
                    @if partition.pass > 1 { p.dim { "pass " (partition.pass) } }
                    @if let Some(error) = &partition.error { p.bad { (clip(error, 160)) } }
                    @if failed && may_retry {
                        (forms::button(context, &format!("/syncs/{}/retry", sync.run_id),
                            &[("partition", &partition.partition_id), ("restart", "yes")], retry_label, ""))
                        (forms::commands(&[command(["sync", "retry", &sync.run_id.to_string(), "--restart",
                            "--partition", &partition.partition_id])]))
                    }
                }
            }
        }
    }
}

const fn class(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Completed => "done",
        PartitionState::Failed => "failed",
        PartitionState::Pending | PartitionState::InProgress | PartitionState::FetchingPages => "",
    }
}
