//! Every metric by its name, and what it says. A name that is not here is not shown.

/// What kind of number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric.
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

/// All of them, in the order in which they are shown.
pub(super) const ALL: &[Metric] = &[
    gauge("tidemill_build_info", "The version of this server; always 1."),
    gauge("tidemill_runs_queued", "Runs that wait, by what holds them back; open ones could be claimed now."),
    gauge("tidemill_runs_oldest_seconds", "Age of the oldest run that waits, by what holds it back."),
    gauge("tidemill_runs_held", "Runs that workers hold, by state."),
    gauge("tidemill_queue_ready", "Messages that could be received now: the figure to scale workers on."),
    gauge("tidemill_queue_oldest_seconds", "Age of the oldest message that could be received now."),
    gauge("tidemill_queue_delayed", "Messages that wait for their time."),
    gauge("tidemill_queue_in_flight", "Messages that somebody has."),
    gauge("tidemill_queue_dead", "Dead letters."),
    gauge("tidemill_partitions_stuck", "Open partitions without progress for ten minutes."),
    gauge("tidemill_sync_fetched_stones", "Stones that the feed's sync has fetched so far, by all workers."),
    gauge("tidemill_sync_consolidated_stones", "Stones that the feed's sync has consolidated so far."),
    gauge("tidemill_watermark_age_seconds", "How far the feed's watermark is behind the clock."),
    gauge("tidemill_feed_down", "1 while the feed's circuit is not closed."),
    gauge("tidemill_workers", "Worker processes that live."),
    counter("tidemill_transitions_total", "Runs that this process brought into a state."),
    counter("tidemill_claims_total", "Claims that this process carried out: given, or empty."),
    counter("tidemill_sweeper_decisions_total", "Runs that this process's sweeper ended, by cause."),
    counter("tidemill_lease_expiries_total", "Runs that this process's sweeper took from a silent worker."),
    counter("tidemill_locks_released_total", "Messages that this process took from dead workers."),
    counter("tidemill_dead_letters_total", "Messages that this process saw become dead letters, by queue."),
    counter("tidemill_pages_total", "Pages that this process stored."),
    counter("tidemill_pages_skipped_total", "Messages for pages that this process skipped, by reason."),
    counter("tidemill_page_stones_total", "Stones on these pages."),
    counter("tidemill_repeated_stones_total", "Places of feeds' lists whose stone was listed before."),
    counter("tidemill_nameless_records_total", "Records without an id that partitions were completed with."),
    histogram("tidemill_page_seconds", "Time of a page in this process, but for the fetch."),
    counter("tidemill_consolidated_stones_total", "Stones that this process consolidated."),
    counter("tidemill_rejected_stones_total", "Stones that this process rejected when it consolidated."),
    counter("tidemill_consolidation_batches_total", "Batches that this process consolidated."),
    histogram("tidemill_message_hold_seconds", "Time for which this process held a message, by queue."),
    histogram("tidemill_http_request_seconds", "Time to the head of the answer, by route."),
    gauge("tidemill_http_connections", "Open connections of callers."),
    counter("tidemill_http_refused_total", "Callers that a limit of the server turned away."),
    counter("tidemill_loop_restarts_total", "Restarts of a background loop of this process after a failure."),
    gauge("tidemill_loops_failing", "Background loops of this process whose last pass failed, by name."),
    gauge("tidemill_pool_connections", "Connections to the database: at most, open, and busy."),
    counter(
        "tidemill_unreadable_rows_total",
        "Rows of the database that this process skipped because it cannot read them, by table.",
    ),
    counter(
        "tidemill_metrics_dropped_total",
        "Figures that were not kept, because their label has too many values.",
    ),
    gauge("process_resident_memory_bytes", "Memory of this process."),
    gauge("process_open_fds", "Open files of this process."),
];

/// The metric of a name.
pub(super) fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}

/// Where the age of the oldest is said of something that waits.
pub(super) fn oldest(name: &str) -> Option<&'static str> {
    match name {
        "tidemill_runs_queued" => Some("tidemill_runs_oldest_seconds"),
        "tidemill_queue_ready" => Some("tidemill_queue_oldest_seconds"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_explained_to_people() {
        let page = include_str!("../../../../docs/observability.md");
        for metric in ALL {
            assert!(page.contains(&format!("`{}`", metric.name)), "{} is not in the page", metric.name);
        }
    }

    /// A figure that is misspelt there would scale nothing, and nobody would be told.
    #[test]
    fn what_workers_are_scaled_on_is_a_gauge_that_is_said() {
        let text = include_str!("../../../../deploy/keda.yaml");
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("tidemill_")).collect();
        assert!(named.len() >= 2, "{named:?}");
        for name in named {
            assert_eq!(find(name).map(|metric| metric.kind), Some(Kind::Gauge), "{name}");
        }
    }

    #[test]
    fn counters_are_named_as_such_and_nothing_else_is() {
        for metric in ALL {
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        }
    }
}
