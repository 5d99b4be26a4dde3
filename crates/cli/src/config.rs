//! The configuration: a table of keys with their descriptions, defaults and parsers.
//!
//! Options override environment variables, which override the file, which overrides the defaults. The printed defaults,
//! the check and the loading all use the table, so they cannot disagree.

pub(crate) mod alerts;
pub(crate) mod reach;
pub(crate) mod server;
pub(crate) mod sync;

use crate::args::Global;
use crate::failure::Failure;
use crate::{environment, times};
use server::ServerConfig;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sync::{FeedAuthorities, PartitionLimits, QueueOverrides};
use tidemill_core::limits;
use tidemill_core::reach::Reach;
use tidemill_engine::Upkeep;
use tidemill_engine::alerts::AlertSettings;
use tidemill_engine::sync::SyncSettings;
use tidemill_feeds::Tuning;
use tidemill_store::Pooler;

/// Values of all configuration keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) database: String,
    pub(crate) schema: String,
    pub(crate) sync_schema: String,
    pub(crate) pooler: Pooler,
    pub(crate) connections: u32,
    pub(crate) slots: usize,
    pub(crate) beat: Duration,
    pub(crate) dead_after: Duration,
    pub(crate) grace: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) sweep_idle: Duration,
    pub(crate) retention: Duration,
    pub(crate) page_size: u32,
    pub(crate) overlap: Duration,
    pub(crate) give_up_after: Duration,
    pub(crate) delete_limit_percent: u32,
    pub(crate) batch: usize,
    pub(crate) upsert: usize,
    pub(crate) unlimited: bool,
    pub(crate) feed_authorities: FeedAuthorities,
    pub(crate) partitions: PartitionLimits,
    pub(crate) queues: QueueOverrides,
    pub(crate) server: ServerConfig,
    pub(crate) alerts: AlertSettings,
    pub(crate) reach: Reach,
}

impl Default for Config {
    fn default() -> Self {
        let (upkeep, sync) = (Upkeep::default(), SyncSettings::default());
        Self {
            database: "tidemill.db".to_owned(),
            schema: "ops".to_owned(),
            sync_schema: "public".to_owned(),
            pooler: Pooler::Session,
            connections: limits::POOL_CONNECTIONS,
            slots: 1,
            beat: Duration::from_secs(limits::HEARTBEAT_SECS),
            dead_after: upkeep.dead_after,
            grace: Duration::from_secs(limits::CANCEL_GRACE_SECS),
            sweep_every: upkeep.every,
            sweep_idle: upkeep.idle,
            retention: upkeep.retention,
            page_size: sync.page_size,
            overlap: sync.overlap,
            give_up_after: sync.give_up_after,
            delete_limit_percent: 20,
            batch: sync.batch,
            upsert: sync.upsert,
            unlimited: false,
            feed_authorities: FeedAuthorities::default(),
            partitions: PartitionLimits::default(),
            queues: QueueOverrides::default(),
            server: ServerConfig::default(),
            alerts: AlertSettings::default(),
            reach: Reach::default(),
        }
    }
}

impl Config {
    pub(crate) fn sync(&self) -> SyncSettings {
        SyncSettings {
            page_size: self.page_size,
            overlap: self.overlap,
            give_up_after: self.give_up_after,
            delete_limit: f64::from(self.delete_limit_percent) / 100.0,
            batch: self.batch,
            upsert: self.upsert,
            unlimited: self.unlimited,
            tuning: self.feed_tuning(),
            partition_target: self.partitions.target.into(),
            partition_min: self.partitions.min.into(),
            partitions_full: self.partitions.full,
            partitions_incremental: self.partitions.incremental,
            count_calls_max: self.partitions.count_calls_max(),
            heartbeat_every: self.beat,
            grace: self.grace,
            ..SyncSettings::default()
        }
    }

    /// Returns the settings of the clients of feeds.
    pub(crate) fn feed_tuning(&self) -> Tuning {
        Tuning { authorities: self.feed_authorities.certificates.clone(), ..Tuning::default() }
    }

    pub(crate) fn upkeep(&self) -> Upkeep {
        Upkeep {
            dead_after: self.dead_after,
            retention: self.retention,
            every: self.sweep_every,
            idle: self.sweep_idle,
        }
    }
}

pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) show: fn(&Config) -> String,
    pub(crate) set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Parses a duration between `min` and `max`.
pub(crate) fn parse_span(text: &str, min: &str, max: &str) -> Result<Duration, String> {
    let value = times::parse_duration(text)?;
    let (low, high) = (times::parse_duration(min)?, times::parse_duration(max)?);
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("it must be between {min} and {max}")) }
}

/// Parses a number between `min` and `max`.
pub(crate) fn parse_number(text: &str, min: u32, max: u32) -> Result<u32, String> {
    let value = text.parse::<u32>().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| format!("it must be a number between {min} and {max}"))
}

const KEYS: &[Key] = &[
    Key {
        path: "database.url",
        doc: "Database address: postgres://…, sqlite://path, a file path, or @file to read the address from a file.",
        show: |config| quote(&config.database),
        set: |config, text| {
            text.clone_into(&mut config.database);
            if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(()) }
        },
    },
    Key {
        path: "database.schema",
        doc: "PostgreSQL schema that holds the tables.",
        show: |config| quote(&config.schema),
        set: |config, text| {
            text.clone_into(&mut config.schema);
            tidemill_store::Schema::postgres(text).map(|_| ()).map_err(|error| error.to_string())
        },
    },
    Key {
        path: "database.sync-schema",
        doc: "PostgreSQL schema that holds the tables of syncs.",
        show: |config| quote(&config.sync_schema),
        set: |config, text| {
            text.clone_into(&mut config.sync_schema);
            tidemill_store::Schema::postgres(text).map(|_| ()).map_err(|error| error.to_string())
        },
    },
    Key {
        path: "database.pooler",
        doc: "Pooling mode of the connection to PostgreSQL: session, or transaction for a pooler in transaction mode.",
        show: |config| quote(if config.pooler == Pooler::Session { "session" } else { "transaction" }),
        set: |config, text| {
            config.pooler = match text {
                "session" => Pooler::Session,
                "transaction" => Pooler::Transaction,
                _ => return Err("it must be session or transaction".to_owned()),
            };
            Ok(())
        },
    },
    Key {
        path: "database.connections",
        doc: "Maximum number of connections of one process to PostgreSQL.",
        show: |config| config.connections.to_string(),
        set: |config, text| parse_number(text, 1, 1_000).map(|value| config.connections = value),
    },
    Key {
        path: "worker.slots",
        doc: "Maximum number of runs that one worker process executes at once.",
        show: |config| config.slots.to_string(),
        set: |config, text| parse_number(text, 1, 256).map(|value| config.slots = value as usize),
    },
    Key {
        path: "worker.beat",
        doc: "Interval of worker heartbeats, which also deliver cancels. It is at most a third of dead-after.",
        show: |config| quote(&times::format_exact(config.beat)),
        set: |config, text| parse_span(text, "100ms", "10s").map(|value| config.beat = value),
    },
    Key {
        path: "worker.dead-after",
        doc: "Time without a heartbeat after which a worker counts as dead. Use the same value for all processes.",
        show: |config| quote(&times::format_exact(config.dead_after)),
        set: |config, text| parse_span(text, "1s", "1d").map(|value| config.dead_after = value),
    },
    Key {
        path: "worker.grace",
        doc: "Time that a command, or a page of a feed, has to end when its worker shuts down.",
        show: |config| quote(&times::format_exact(config.grace)),
        set: |config, text| parse_span(text, "0s", "1d").map(|value| config.grace = value),
    },
    Key {
        path: "upkeep.every",
        doc: "Interval of sweeps while there is work or a live worker.",
        show: |config| quote(&times::format_exact(config.sweep_every)),
        set: |config, text| parse_span(text, "100ms", "1h").map(|value| config.sweep_every = value),
    },
    Key {
        path: "upkeep.idle",
        doc: "Interval of sweeps while there is neither work nor a live worker.",
        show: |config| quote(&times::format_exact(config.sweep_idle)),
        set: |config, text| parse_span(text, "100ms", "1h").map(|value| config.sweep_idle = value),
    },
    Key {
        path: "upkeep.retention",
        doc: "Retention of finished runs, with their events and artifacts.",
        show: |config| quote(&times::format_exact(config.retention)),
        set: |config, text| parse_span(text, "1h", "36500d").map(|value| config.retention = value),
    },
    Key {
        path: "alerts.queue-depth",
        doc: "Alert when a project has more queued runs, or a queue more messages, than this; 0 disables it.",
        show: |config| config.alerts.queue_depth.to_string(),
        set: |config, text| parse_number(text, 0, 1_000_000).map(|value| config.alerts.queue_depth = value),
    },
    Key {
        path: "alerts.stuck-after",
        doc: "Alert when a partition makes no progress for this time; 0s disables it.",
        show: |config| quote(&times::format_exact(config.alerts.stuck_after)),
        set: |config, text| parse_span(text, "0s", "30d").map(|value| config.alerts.stuck_after = value),
    },
    Key {
        path: "alerts.watermark-after",
        doc: "Alert when a watermark is older than this; 0s disables it.",
        show: |config| quote(&times::format_exact(config.alerts.watermark_after)),
        set: |config, text| parse_span(text, "0s", "365d").map(|value| config.alerts.watermark_after = value),
    },
];

pub(crate) fn quote(text: &str) -> String {
    format!("{text:?}")
}

/// Every key, in the order of the printed defaults.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(sync::KEYS).chain(server::KEYS).chain(reach::KEYS)
}

/// Loads the configuration, or reports all of its errors.
pub(crate) fn load(global: &Global) -> Result<Config, Failure> {
    let (config, errors) = read(global)?;
    if errors.is_empty() {
        return Ok(config);
    }
    Err(Failure::usage(format!("invalid configuration: {}", errors.join("; ")))
        .with_hint("tidemill config default"))
}

fn read(global: &Global) -> Result<(Config, Vec<String>), Failure> {
    let mut config = Config::default();
    let mut errors = Vec::new();
    if let Some(path) = config_file(global) {
        read_file(&path, &mut config, &mut errors)?;
    }
    for key in keys() {
        if let Some((name, value)) = environment::variable_of_key(key.path)
            && let Err(problem) = (key.set)(&mut config, &value)
        {
            errors.push(format!("{name}: {problem}"));
        }
    }
    if let Some(database) = &global.database {
        config.database.clone_from(database);
    }
    if let Some(schema) = &global.schema {
        config.schema.clone_from(schema);
    }
    if config.beat * 3 > config.dead_after {
        errors.push("worker.beat must be at most a third of worker.dead-after".to_owned());
    }
    errors.extend(config.partitions.error());
    if let Some(path) = config.database.strip_prefix('@') {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("could not read the database address from `{path}`: {error}"))
        })?;
        text.trim().clone_into(&mut config.database);
    }
    Ok((config, errors))
}

/// Returns the configuration file: the given one, or the default one if it exists.
pub(crate) fn config_file(global: &Global) -> Option<PathBuf> {
    let default = Path::new("tidemill.toml");
    global.config.clone().or_else(|| default.exists().then(|| default.to_owned()))
}

fn read_file(path: &Path, config: &mut Config, errors: &mut Vec<String>) -> Result<(), Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("could not read `{shown}`: {error}")))?;
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            errors.push(format!("{shown}: {}", error.to_string().trim().replace('\n', " ")));
            return Ok(());
        }
    };
    for (section, values) in &table {
        let Some(values) = values.as_table() else {
            errors.push(format!("{section} must be a section such as [database]"));
            continue;
        };
        for (name, value) in values {
            let path = format!("{section}.{name}");
            if path == "alerts.targets" {
                alerts::read(value, &mut config.alerts.targets, errors);
                continue;
            }
            if path == reach::PROJECTS {
                reach::read(value, &mut config.reach, errors);
                continue;
            }
            let Some(key) = keys().find(|key| key.path == path) else {
                errors.push(format!("{path} is not a configuration key"));
                continue;
            };
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(value) => value.to_string(),
                toml::Value::Array(_) if section == "reach" => {
                    let Some(text) = reach::join(value) else {
                        errors.push(format!("{path}: it must be a list of strings without commas"));
                        continue;
                    };
                    text
                }
                toml::Value::Float(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_)
                | toml::Value::Table(_) => {
                    errors.push(format!("{path}: it must be a string or an integer"));
                    continue;
                }
            };
            if let Err(problem) = (key.set)(config, &text) {
                errors.push(format!("{path}: {problem}"));
            }
        }
    }
    Ok(())
}

/// Formats every key with its default as a configuration file.
pub(crate) fn default_text() -> String {
    let default = Config::default();
    let mut text = String::from(
        "# Configuration of Tidemill. This file lists the defaults. Options override environment variables\n\
         # (TIDEMILL_WORKER_BEAT for worker.beat), which override this file.\n",
    );
    let mut section = "";
    for key in keys() {
        let (own, name) = key.path.split_once('.').unwrap_or(("", key.path));
        if own != section {
            section = own;
            let _ = writeln!(text, "\n[{section}]");
        }
        let _ = writeln!(text, "# {}\n{name} = {}", key.doc, (key.show)(&default));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_core::queue::QueueSettings;

    fn default_queues() -> Vec<QueueSettings> {
        QueueSettings::defaults()
    }

    #[test]
    fn printed_defaults_are_the_defaults() {
        let mut config = Config { slots: 9, ..Config::default() };
        let path = std::env::temp_dir().join(format!("tidemill-default-{}.toml", std::process::id()));
        std::fs::write(&path, default_text()).unwrap();
        let mut errors = Vec::new();
        read_file(&path, &mut config, &mut errors).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(errors, Vec::<String>::new());
        let default = Config::default();
        for key in keys() {
            assert_eq!((key.show)(&config), (key.show)(&default), "{}", key.path);
        }
        assert!(config.queues.changes(&default_queues()).is_empty(), "the defaults match the database");
    }

    #[test]
    fn all_errors_are_reported_together() {
        let path = std::env::temp_dir().join(format!("tidemill-errors-{}.toml", std::process::id()));
        std::fs::write(&path, "[worker]\nbeat = \"fast\"\nslot = 3\n[database]\nconnections = 0\n").unwrap();
        let mut errors = Vec::new();
        read_file(&path, &mut Config::default(), &mut errors).unwrap();
        std::fs::remove_file(&path).unwrap();
        errors.sort();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[2].contains("is not a configuration key"), "{errors:?}");
    }
}
