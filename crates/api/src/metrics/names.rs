//! All metrics with their help texts. A metric that is not in this table is not exposed.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, help }
}

/// All metrics in output order.
pub(super) const ALL: &[Metric] = &[
    gauge("tidemill_build_info", "Version of this server; always 1."),
    gauge(
        "tidemill_runs_queued",
        "Queued runs, by the gate that blocks them; `open` ones can be claimed now.",
    ),
    gauge("tidemill_runs_oldest_seconds", "Age of the oldest queued run, by the gate that blocks it."),
    gauge("tidemill_runs_held", "Runs that workers hold, by state."),
    gauge("tidemill_queue_ready", "Messages that can be received now. Use this metric to scale workers."),
    gauge("tidemill_queue_oldest_seconds", "Age of the oldest message that can be received now."),
    gauge("tidemill_queue_delayed", "Messages that are delayed."),
    gauge("tidemill_queue_in_flight", "Messages that workers hold."),
    gauge("tidemill_queue_dead", "Dead letters."),
    gauge("tidemill_partitions_stuck", "Open partitions without progress for ten minutes."),
    gauge(
        "tidemill_sync_fetched_records",
        "Records that the feed's current sync has fetched, by all workers.",
    ),
    gauge("tidemill_sync_consolidated_records", "Records that the feed's current sync has consolidated."),
    gauge("tidemill_watermark_age_seconds", "Age of the feed's watermark."),
    gauge("tidemill_feed_down", "1 while the feed's circuit breaker is not closed."),
    gauge("tidemill_workers", "Live worker processes."),
    gauge("tidemill_audit_unsealed", "Audit entries that are not sealed yet."),
    gauge("tidemill_audit_oldest_unsealed_seconds", "Age of the oldest audit entry that is not sealed yet."),
    counter(
        "tidemill_transitions_total",
        "State transitions of runs by this process, by new state and kind.",
    ),
    counter("tidemill_claims_total", "Claims executed by this process, by outcome: given or empty."),
    counter("tidemill_sweeper_decisions_total", "Runs ended by this process's sweeper, by cause."),
    counter("tidemill_lease_expiries_total", "Runs that this process's sweeper took from a silent worker."),
    counter("tidemill_locks_released_total", "Messages that this process released from dead workers."),
    counter("tidemill_dead_letters_total", "Messages that this process moved to the dead letters, by queue."),
    counter("tidemill_pages_total", "Pages that this process stored."),
    counter("tidemill_pages_skipped_total", "Messages for pages that this process skipped, by reason."),
    counter("tidemill_page_records_total", "Records on these pages."),
    counter("tidemill_repeated_records_total", "Feed list positions whose record was already listed before."),
    counter("tidemill_nameless_records_total", "Records without an id in completed partitions."),
    histogram("tidemill_page_seconds", "Processing time of a page in this process, without the fetch."),
    counter("tidemill_consolidated_records_total", "Records that this process consolidated."),
    counter("tidemill_rejected_records_total", "Records that this process rejected during consolidation."),
    counter("tidemill_consolidation_batches_total", "Batches that this process consolidated."),
    histogram("tidemill_message_hold_seconds", "Time for which this process held a message, by queue."),
    histogram("tidemill_http_request_seconds", "Time until the response headers, by route."),
    gauge("tidemill_http_connections", "Open client connections."),
    counter("tidemill_http_refused_total", "Requests and connections refused because of a server limit."),
    counter("tidemill_loop_restarts_total", "Restarts of a background loop of this process after a failure."),
    gauge("tidemill_loops_failing", "Background loops of this process whose last pass failed, by name."),
    gauge("tidemill_pool_connections", "Database connections: maximum, open and busy."),
    counter(
        "tidemill_unreadable_rows_total",
        "Database rows that this process skipped because it cannot read them, by table.",
    ),
    counter(
        "tidemill_metrics_dropped_total",
        "Measurements dropped because their label has too many values.",
    ),
    gauge("process_resident_memory_bytes", "Resident memory of this process."),
    gauge("process_open_fds", "Open files of this process."),
];

pub(super) fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}

/// The metric with the age of the oldest item, for metrics that count waiting items.
pub(super) fn oldest(name: &str) -> Option<&'static str> {
    match name {
        "tidemill_runs_queued" => Some("tidemill_runs_oldest_seconds"),
        "tidemill_audit_unsealed" => Some("tidemill_audit_oldest_unsealed_seconds"),
        "tidemill_queue_ready" => Some("tidemill_queue_oldest_seconds"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_documented() {
        let page = include_str!("../../../../docs/observability.md");
        for metric in ALL {
            assert!(page.contains(&format!("`{}`", metric.name)), "{} is not in the page", metric.name);
        }
    }

    /// A misspelt metric would silently scale nothing.
    #[test]
    fn metrics_in_the_keda_example_are_exposed_gauges() {
        let text = include_str!("../../../../deploy/kustomize/keda/prometheus/scaled-objects.yaml");
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("tidemill_")).collect();
        assert!(named.len() >= 2, "{named:?}");
        for name in named {
            assert_eq!(find(name).map(|metric| metric.kind), Some(Kind::Gauge), "{name}");
        }
    }

    #[test]
    fn only_counters_end_in_total() {
        for metric in ALL {
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        }
    }
}
