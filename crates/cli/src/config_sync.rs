//! The keys of syncs, of the heatmap and of queues.

use crate::args_sync::PartitionFlags;
use crate::config::{Key, number, quoted, span};
use crate::fail::Failure;
use crate::times;
use std::time::Duration;
use tidemill_core::queue::{CONSOLIDATE, QueueSettings, WORK_DONE, WORK_ITEMS};
use tidemill_engine::sync::SyncSettings;

/// How a scan divides a feed into partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partitions {
    /// Records that a partition should have.
    pub(crate) target: u32,
    /// Records that a partition has at the least.
    pub(crate) least: u32,
    /// Partitions of a full sync, at most.
    pub(crate) full: u32,
    /// Partitions of an incremental sync, at most.
    pub(crate) incremental: u32,
}

impl Default for Partitions {
    fn default() -> Self {
        let sync = SyncSettings::default();
        let records = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            target: records(sync.partition_target),
            least: records(sync.partition_min),
            full: sync.partitions_full,
            incremental: sync.partitions_incremental,
        }
    }
}

impl Partitions {
    /// Count calls of one scan, at most: two for each partition, as with the defaults.
    pub(crate) fn count_calls_max(&self) -> u32 {
        SyncSettings::default().count_calls_max.max(self.full.saturating_mul(2))
    }

    /// These numbers, with the flags that were given in their place.
    pub(crate) fn with_flags(self, flags: &PartitionFlags) -> Result<Self, Failure> {
        let partitions = Self {
            target: flags.partition_target.unwrap_or(self.target),
            least: flags.partition_min.unwrap_or(self.least),
            full: flags.partitions_full.unwrap_or(self.full),
            incremental: flags.partitions_incremental.unwrap_or(self.incremental),
        };
        match partitions.fault() {
            Some(fault) => Err(Failure::usage(fault)),
            None => Ok(partitions),
        }
    }

    /// The fault of numbers that do not fit together.
    pub(crate) fn fault(&self) -> Option<String> {
        let fault = || "sync.partition-min: it must not be larger than sync.partition-target".to_owned();
        (self.least > self.target).then(fault)
    }
}

/// Configured settings of one queue. `None` leaves what the database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueNumber {
    lock: Option<Duration>,
    deliveries: Option<u32>,
    /// Zero: ids of completed messages are not remembered.
    window: Option<Duration>,
}

/// Configured settings of all queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueNumbers {
    work_items: QueueNumber,
    work_done: QueueNumber,
    consolidate: QueueNumber,
}

impl QueueNumbers {
    /// The queues whose settings differ from the configuration, as they should be.
    pub(crate) fn changed(&self, present: &[QueueSettings]) -> Vec<QueueSettings> {
        let queues =
            [(WORK_ITEMS, &self.work_items), (WORK_DONE, &self.work_done), (CONSOLIDATE, &self.consolidate)];
        let wanted = queues.into_iter().filter_map(|(name, wish)| {
            let settings = present.iter().find(|settings| settings.queue == name)?;
            let wanted = wish.applied_to(settings.clone());
            (wanted != *settings).then_some(wanted)
        });
        wanted.collect()
    }
}

impl QueueNumber {
    fn applied_to(&self, settings: QueueSettings) -> QueueSettings {
        let secs = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        QueueSettings {
            lock_secs: self.lock.map_or(settings.lock_secs, secs),
            deliveries_max: self
                .deliveries
                .map_or(settings.deliveries_max, |count| i32::try_from(count).unwrap_or(i32::MAX)),
            window_secs: self
                .window
                .map_or(settings.window_secs, |time| Some(secs(time)).filter(|secs| *secs > 0)),
            ..settings
        }
    }

    /// These settings, with the defaults where nothing is configured.
    fn shown(&self, queue: &str) -> QueueSettings {
        let default = QueueSettings::defaults().into_iter().find(|settings| settings.queue == queue);
        self.applied_to(default.unwrap_or_else(|| QueueSettings::defaults().remove(0)))
    }
}

fn shown_secs(secs: i32) -> String {
    quoted(&times::written(Duration::from_secs(u64::try_from(secs).unwrap_or(0))))
}

/// The three keys of one queue.
macro_rules! queue_keys {
    ($name:literal, $field:ident, $lock:ident, $deliveries:ident, $window:ident) => {
        const $lock: Key = Key {
            path: concat!("queue.", $name, "-lock"),
            doc: concat!(
                "How long a message of the queue ",
                $name,
                " is locked for its worker, unless the worker renews it."
            ),
            show: |config| shown_secs(config.queues.$field.shown($name).lock_secs),
            set: |config, text| span(text, "1m", "1d").map(|value| config.queues.$field.lock = Some(value)),
        };
        const $deliveries: Key = Key {
            path: concat!("queue.", $name, "-deliveries"),
            doc: concat!("Deliveries of a message of the queue ", $name, " before it becomes a dead letter."),
            show: |config| config.queues.$field.shown($name).deliveries_max.to_string(),
            set: |config, text| {
                number(text, 1, 1_000).map(|value| config.queues.$field.deliveries = Some(value))
            },
        };
        const $window: Key = Key {
            path: concat!("queue.", $name, "-window"),
            doc: concat!(
                "How long the id of a completed message of the queue ",
                $name,
                " is remembered, to detect duplicates; 0s for not at all."
            ),
            show: |config| shown_secs(config.queues.$field.shown($name).window_secs.unwrap_or(0)),
            set: |config, text| {
                span(text, "0s", "30d").map(|value| config.queues.$field.window = Some(value))
            },
        };
    };
}
queue_keys!("work-items", work_items, ITEMS_LOCK, ITEMS_DELIVERIES, ITEMS_WINDOW);
queue_keys!("work-done", work_done, DONE_LOCK, DONE_DELIVERIES, DONE_WINDOW);
queue_keys!("consolidate", consolidate, CONSOLIDATE_LOCK, CONSOLIDATE_DELIVERIES, CONSOLIDATE_WINDOW);

pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "sync.page-size",
        doc: "Records per page of a feed; a feed may have a lower limit of its own.",
        show: |config| config.page_size.to_string(),
        set: |config, text| number(text, 1, 1_000).map(|value| config.page_size = value),
    },
    Key {
        path: "sync.overlap",
        doc: "How much of the time before the watermark is read again.",
        show: |config| quoted(&times::written(config.overlap)),
        set: |config, text| span(text, "1s", "30d").map(|value| config.overlap = value),
    },
    Key {
        path: "sync.give-up-after",
        doc: "How long a feed may be down before its partitions fail.",
        show: |config| quoted(&times::written(config.give_up_after)),
        set: |config, text| span(text, "1s", "30d").map(|value| config.give_up_after = value),
    },
    Key {
        path: "sync.delete-limit-percent",
        doc: "Share of a feed's stones that one full sync may delete; more than that deletes nothing, and alerts.",
        show: |config| config.delete_limit_percent.to_string(),
        set: |config, text| number(text, 0, 100).map(|value| config.delete_limit_percent = value),
    },
    Key {
        path: "sync.batch",
        doc: "Stones in one batch of consolidation.",
        show: |config| config.batch.to_string(),
        set: |config, text| number(text, 1, 100_000).map(|value| config.batch = value as usize),
    },
    Key {
        path: "sync.upsert",
        doc: "Stones in one statement of consolidation.",
        show: |config| config.upsert.to_string(),
        set: |config, text| number(text, 1, 100_000).map(|value| config.upsert = value as usize),
    },
    Key {
        path: "sync.unlimited",
        doc: "Lift the rate limits of feeds: for demonstrations and benchmarks on one's own supplier.",
        show: |config| config.unlimited.to_string(),
        set: |config, text| {
            config.unlimited = match text {
                "true" => true,
                "false" => false,
                _ => return Err("it must be true or false".to_owned()),
            };
            Ok(())
        },
    },
    Key {
        path: "sync.partition-target",
        doc: "Records that a partition of a sync should have.",
        show: |config| config.partitions.target.to_string(),
        set: |config, text| number(text, 1, 10_000_000).map(|value| config.partitions.target = value),
    },
    Key {
        path: "sync.partition-min",
        doc: "Records that a partition has at the least, where a feed has so many.",
        show: |config| config.partitions.least.to_string(),
        set: |config, text| number(text, 1, 10_000_000).map(|value| config.partitions.least = value),
    },
    Key {
        path: "sync.partitions-full",
        doc: "Partitions of a full sync, at most.",
        show: |config| config.partitions.full.to_string(),
        set: |config, text| number(text, 1, PARTITIONS_MAX).map(|value| config.partitions.full = value),
    },
    Key {
        path: "sync.partitions-incremental",
        doc: "Partitions of an incremental sync, at most.",
        show: |config| config.partitions.incremental.to_string(),
        set: |config, text| {
            number(text, 1, PARTITIONS_MAX).map(|value| config.partitions.incremental = value)
        },
    },
    ITEMS_LOCK,
    ITEMS_DELIVERIES,
    ITEMS_WINDOW,
    DONE_LOCK,
    DONE_DELIVERIES,
    DONE_WINDOW,
    CONSOLIDATE_LOCK,
    CONSOLIDATE_DELIVERIES,
    CONSOLIDATE_WINDOW,
];

/// The most partitions that can be configured.
const PARTITIONS_MAX: u32 = 500;
