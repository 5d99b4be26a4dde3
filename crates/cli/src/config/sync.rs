//! Configuration keys of syncs and queues.

use crate::commands::scheduler::PartitionArgs;
use crate::config::{Key, parse_number, parse_span, quote};
use crate::failure::Failure;
use crate::times;
use std::time::Duration;
use tidemill_core::queue::{CONSOLIDATE, QueueSettings, WORK_DONE, WORK_ITEMS};
use tidemill_engine::sync::SyncSettings;
use tidemill_feeds::Authorities;

/// Sizes and numbers of partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionLimits {
    /// Target number of records per partition.
    pub(crate) target: u32,
    /// Minimum number of records per partition.
    pub(crate) min: u32,
    /// Maximum number of partitions of a full sync.
    pub(crate) full: u32,
    /// Maximum number of partitions of an incremental sync.
    pub(crate) incremental: u32,
}

impl Default for PartitionLimits {
    fn default() -> Self {
        let sync = SyncSettings::default();
        let records = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            target: records(sync.partition_target),
            min: records(sync.partition_min),
            full: sync.partitions_full,
            incremental: sync.partitions_incremental,
        }
    }
}

impl PartitionLimits {
    /// Maximum number of count calls of one scan: two per partition, as with the defaults.
    pub(crate) fn count_calls_max(&self) -> u32 {
        SyncSettings::default().count_calls_max.max(self.full.saturating_mul(2))
    }

    /// Applies the options of the command line.
    pub(crate) fn with_args(self, args: &PartitionArgs) -> Result<Self, Failure> {
        let partitions = Self {
            target: args.partition_target.unwrap_or(self.target),
            min: args.partition_min.unwrap_or(self.min),
            full: args.partitions_full.unwrap_or(self.full),
            incremental: args.partitions_incremental.unwrap_or(self.incremental),
        };
        match partitions.error() {
            Some(error) => Err(Failure::usage(error)),
            None => Ok(partitions),
        }
    }

    /// Returns an error if the values contradict each other.
    pub(crate) fn error(&self) -> Option<String> {
        let error = || "sync.partition-min must not be larger than sync.partition-target".to_owned();
        (self.min > self.target).then(error)
    }
}

/// Certificate authorities of feeds, and the file that contains them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FeedAuthorities {
    /// Empty if there is no file.
    file: String,
    pub(crate) certificates: Authorities,
}

impl FeedAuthorities {
    /// Reads a file. An empty name stands for no file.
    fn read(file: &str) -> Result<Self, String> {
        if file.is_empty() {
            return Ok(Self::default());
        }
        let pem = std::fs::read(file).map_err(|error| format!("could not read `{file}`: {error}"))?;
        let certificates = Authorities::from_pem(&pem).map_err(|error| format!("`{file}`: {error}"))?;
        Ok(Self { file: file.to_owned(), certificates })
    }
}

/// Configured settings of one queue. `None` keeps the value in the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueOverride {
    lock: Option<Duration>,
    deliveries: Option<u32>,
    /// Zero switches the detection of duplicates off.
    window: Option<Duration>,
}

/// Configured settings of all queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueOverrides {
    work_items: QueueOverride,
    work_done: QueueOverride,
    consolidate: QueueOverride,
}

impl QueueOverrides {
    /// Returns the new settings of the queues that differ from the configuration.
    pub(crate) fn changes(&self, current: &[QueueSettings]) -> Vec<QueueSettings> {
        let queues =
            [(WORK_ITEMS, &self.work_items), (WORK_DONE, &self.work_done), (CONSOLIDATE, &self.consolidate)];
        let changes = queues.into_iter().filter_map(|(name, overrides)| {
            let settings = current.iter().find(|settings| settings.queue == name)?;
            let new = overrides.applied_to(settings.clone());
            (new != *settings).then_some(new)
        });
        changes.collect()
    }
}

impl QueueOverride {
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

    /// Returns the effective settings: the defaults with the overrides.
    fn effective(&self, queue: &str) -> QueueSettings {
        let default = QueueSettings::defaults().into_iter().find(|settings| settings.queue == queue);
        self.applied_to(default.unwrap_or_else(|| QueueSettings::defaults().remove(0)))
    }
}

fn format_secs(secs: i32) -> String {
    quote(&times::format_exact(Duration::from_secs(u64::try_from(secs).unwrap_or(0))))
}

/// Defines the three keys of one queue.
macro_rules! queue_keys {
    ($name:literal, $field:ident, $lock:ident, $deliveries:ident, $window:ident) => {
        const $lock: Key = Key {
            path: concat!("queue.", $name, "-lock"),
            doc: concat!(
                "Lock time of a message of the queue ",
                $name,
                "; workers renew it while they process the message."
            ),
            show: |config| format_secs(config.queues.$field.effective($name).lock_secs),
            set: |config, text| {
                parse_span(text, "1m", "1d").map(|value| config.queues.$field.lock = Some(value))
            },
        };
        const $deliveries: Key = Key {
            path: concat!("queue.", $name, "-deliveries"),
            doc: concat!(
                "Maximum number of deliveries of a message of the queue ",
                $name,
                " before it becomes a dead letter."
            ),
            show: |config| config.queues.$field.effective($name).deliveries_max.to_string(),
            set: |config, text| {
                parse_number(text, 1, 1_000).map(|value| config.queues.$field.deliveries = Some(value))
            },
        };
        const $window: Key = Key {
            path: concat!("queue.", $name, "-window"),
            doc: concat!(
                "Time for which ids of completed messages of the queue ",
                $name,
                " are kept to detect duplicates; 0s disables it."
            ),
            show: |config| format_secs(config.queues.$field.effective($name).window_secs.unwrap_or(0)),
            set: |config, text| {
                parse_span(text, "0s", "30d").map(|value| config.queues.$field.window = Some(value))
            },
        };
    };
}
queue_keys!("work-items", work_items, ITEMS_LOCK, ITEMS_DELIVERIES, ITEMS_WINDOW);
queue_keys!("work-done", work_done, DONE_LOCK, DONE_DELIVERIES, DONE_WINDOW);
queue_keys!("consolidate", consolidate, CONSOLIDATE_LOCK, CONSOLIDATE_DELIVERIES, CONSOLIDATE_WINDOW);

pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "sync.ca-file",
        doc: "PEM file with certificate authorities of feeds, in addition to those of the system and the bundled ones.",
        show: |config| quote(&config.feed_authorities.file),
        set: |config, text| FeedAuthorities::read(text).map(|read| config.feed_authorities = read),
    },
    Key {
        path: "sync.page-size",
        doc: "Records per page of a feed; a feed may have a lower limit of its own.",
        show: |config| config.page_size.to_string(),
        set: |config, text| parse_number(text, 1, 1_000).map(|value| config.page_size = value),
    },
    Key {
        path: "sync.overlap",
        doc: "Time before the watermark that an incremental sync reads again.",
        show: |config| quote(&times::format_exact(config.overlap)),
        set: |config, text| parse_span(text, "1s", "30d").map(|value| config.overlap = value),
    },
    Key {
        path: "sync.give-up-after",
        doc: "Time for which a feed may be down before its partitions fail.",
        show: |config| quote(&times::format_exact(config.give_up_after)),
        set: |config, text| parse_span(text, "1s", "30d").map(|value| config.give_up_after = value),
    },
    Key {
        path: "sync.delete-limit-percent",
        doc: "Limit for the share of a feed's records that one sync deletes. Above it, the sync only raises an alert.",
        show: |config| config.delete_limit_percent.to_string(),
        set: |config, text| parse_number(text, 0, 100).map(|value| config.delete_limit_percent = value),
    },
    Key {
        path: "sync.batch",
        doc: "Records per batch of the consolidation.",
        show: |config| config.batch.to_string(),
        set: |config, text| parse_number(text, 1, 100_000).map(|value| config.batch = value as usize),
    },
    Key {
        path: "sync.upsert",
        doc: "Records per SQL statement of the consolidation.",
        show: |config| config.upsert.to_string(),
        set: |config, text| parse_number(text, 1, 100_000).map(|value| config.upsert = value as usize),
    },
    Key {
        path: "sync.unlimited",
        doc: "Ignore the rate limits of feeds, for demonstrations and benchmarks.",
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
        doc: "Target number of records per partition.",
        show: |config| config.partitions.target.to_string(),
        set: |config, text| parse_number(text, 1, 10_000_000).map(|value| config.partitions.target = value),
    },
    Key {
        path: "sync.partition-min",
        doc: "Minimum number of records per partition, if the feed has as many.",
        show: |config| config.partitions.min.to_string(),
        set: |config, text| parse_number(text, 1, 10_000_000).map(|value| config.partitions.min = value),
    },
    Key {
        path: "sync.partitions-full",
        doc: "Maximum number of partitions of a full sync.",
        show: |config| config.partitions.full.to_string(),
        set: |config, text| parse_number(text, 1, PARTITIONS_MAX).map(|value| config.partitions.full = value),
    },
    Key {
        path: "sync.partitions-incremental",
        doc: "Maximum number of partitions of an incremental sync.",
        show: |config| config.partitions.incremental.to_string(),
        set: |config, text| {
            parse_number(text, 1, PARTITIONS_MAX).map(|value| config.partitions.incremental = value)
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

/// Highest configurable number of partitions.
const PARTITIONS_MAX: u32 = 500;
