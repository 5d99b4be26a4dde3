//! The partitions of a sync, as a grid that is coloured by how far each is.

use super::money;
use crate::act;
use crate::text::line_of;
use crate::time::took;
use crate::visitor::Visitor;
use crate::words::{bar, count, label};
use maud::{Markup, html};
use tidemill_core::feed::{PRICE_CEILING, PriceRange};
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Partition, SyncStatus};
use tidemill_core::shell::command;
use tidemill_core::sync::SyncState;

/// Prices, in words.
pub(crate) fn range(prices: PriceRange) -> String {
    match (prices.from, prices.to) {
        (0, PRICE_CEILING) => "every price".to_owned(),
        (0, to) => format!("below {}", money(to)),
        (from, PRICE_CEILING) => format!("{} and more", money(from)),
        (from, to) => format!("{} to {}", money(from), money(to)),
    }
}

/// Every partition.
pub(super) fn grid(visitor: &Visitor, status: &SyncStatus) -> Markup {
    let SyncStatus { sync, partitions, newer } = status;
    let may_retry = visitor.may_operate() && sync.state == SyncState::Failed && newer.is_none();
    let is_failed = |partition: &&Partition| partition.state == PartitionState::Failed;
    // A try reads everything that failed; what can be chosen is which of it begins anew.
    let again = if partitions.iter().filter(is_failed).count() > 1 {
        "Retry all that failed, this one from its start"
    } else {
        "Read it again from its start"
    };
    html! {
        div.partitions {
            @for partition in partitions {
                @let failed = partition.state == PartitionState::Failed;
                article id={ "partition-" (partition.partition_id) } class={ "partition p-" (partition.state) }
                    data-key=(partition.partition_id) {
                    header { span { (partition.partition_id) } (label(partition.state.as_str())) }
                    p.dim { (range(partition.prices)) }
                    p { (bar(partition.fetched, partition.predicted, "Read", class(partition.state))) }
                    p { (count(partition.fetched)) " of " (count(partition.predicted))
                        @if partition.rejected > 0 { ", " span.bad { (count(partition.rejected)) " rejected" }
                            }
                        @if let Some(took) = took(partition.first_page_at, partition.ended_at, visitor.now) {
                            span.dim { " · " (took) } } }
                    @if partition.pass > 1 { p.dim { "pass " (partition.pass) } }
                    @if let Some(error) = &partition.error { p.bad { (line_of(error, 160)) } }
                    @if failed && may_retry {
                        (act::button(visitor, &format!("/syncs/{}/retry", sync.run_id),
                            &[("partition", &partition.partition_id), ("restart", "yes")], again, ""))
                        (act::commands(&[command(["sync", "retry", &sync.run_id.to_string(), "--restart",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_said_as_people_say_them() {
        let said = |from, to| range(PriceRange { from, to });
        assert_eq!(said(0, PRICE_CEILING), "every price");
        assert_eq!(said(0, 50_000), "below $500");
        assert_eq!(said(50_000, 123_456), "$500 to $1,234.56");
        assert_eq!(said(123_400, PRICE_CEILING), "$1,234 and more");
    }
}
