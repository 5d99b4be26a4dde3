//! The configuration: one table of keys, each with its default, what it does and how it is read.
//!
//! A flag comes before the environment, the environment before the file, the file before the default. The printed
//! defaults, the check and the loading all go through the table, so they cannot disagree.

use crate::args::{ConfigCommand, Global};
use crate::config_sync::{Partitions, QueueNumbers};
use crate::fail::Failure;
use crate::out::Out;
use crate::{environment, times};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tidemill_core::limits;
use tidemill_engine::Upkeep;
use tidemill_engine::alerts::AlertSettings;
use tidemill_engine::sync::SyncSettings;
use tidemill_store::Pooler;

/// Everything that can be configured.
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
    pub(crate) partitions: Partitions,
    pub(crate) queues: QueueNumbers,
    pub(crate) server: crate::config_server::ServerConfig,
    pub(crate) alerts: AlertSettings,
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
            beat: Duration::from_secs(limits::BEAT_SECS),
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
            partitions: Partitions::default(),
            queues: QueueNumbers::default(),
            server: crate::config_server::ServerConfig::default(),
            alerts: AlertSettings::default(),
        }
    }
}

impl Config {
    /// How syncs are done.
    pub(crate) fn sync(&self) -> SyncSettings {
        SyncSettings {
            page_size: self.page_size,
            overlap: self.overlap,
            give_up_after: self.give_up_after,
            delete_limit: f64::from(self.delete_limit_percent) / 100.0,
            batch: self.batch,
            upsert: self.upsert,
            unlimited: self.unlimited,
            partition_target: self.partitions.target.into(),
            partition_min: self.partitions.least.into(),
            partitions_full: self.partitions.full,
            partitions_incremental: self.partitions.incremental,
            count_calls_max: self.partitions.count_calls_max(),
            beat: self.beat,
            grace: self.grace,
            ..SyncSettings::default()
        }
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

/// One key.
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) show: fn(&Config) -> String,
    pub(crate) set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Reads a duration within bounds.
pub(crate) fn span(text: &str, least: &str, most: &str) -> Result<Duration, String> {
    let value = times::duration(text)?;
    let (low, high) = (times::duration(least)?, times::duration(most)?);
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(format!("it must be between {least} and {most}"))
    }
}

/// Reads a number within bounds.
pub(crate) fn number(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let value = text.parse::<u32>().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("it must be a number between {least} and {most}"))
}

const KEYS: &[Key] = &[
    Key {
        path: "database.url",
        doc: "Where the data is: postgres://…, sqlite://path, a path, or @file that holds the address.",
        show: |config| quoted(&config.database),
        set: |config, text| {
            text.clone_into(&mut config.database);
            if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(()) }
        },
    },
    Key {
        path: "database.schema",
        doc: "The schema on PostgreSQL.",
        show: |config| quoted(&config.schema),
        set: |config, text| {
            text.clone_into(&mut config.schema);
            tidemill_store::Schema::postgres(text).map(|_| ()).map_err(|error| error.to_string())
        },
    },
    Key {
        path: "database.sync-schema",
        doc: "The schema of the tables of syncs on PostgreSQL.",
        show: |config| quoted(&config.sync_schema),
        set: |config, text| {
            text.clone_into(&mut config.sync_schema);
            tidemill_store::Schema::postgres(text).map(|_| ()).map_err(|error| error.to_string())
        },
    },
    Key {
        path: "database.pooler",
        doc: "What stands between us and PostgreSQL: session, or transaction for a pooler in transaction mode.",
        show: |config| quoted(if config.pooler == Pooler::Session { "session" } else { "transaction" }),
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
        doc: "Connections of one process to PostgreSQL.",
        show: |config| config.connections.to_string(),
        set: |config, text| number(text, 1, 1_000).map(|value| config.connections = value),
    },
    Key {
        path: "worker.slots",
        doc: "Runs that one worker process carries out at once.",
        show: |config| config.slots.to_string(),
        set: |config, text| number(text, 1, 256).map(|value| config.slots = value as usize),
    },
    Key {
        path: "worker.beat",
        doc: "How often a worker says that it lives, and learns of cancels. Keep it below a quarter of dead-after.",
        show: |config| quoted(&times::written(config.beat)),
        set: |config, text| span(text, "100ms", "10s").map(|value| config.beat = value),
    },
    Key {
        path: "worker.dead-after",
        doc: "Silence after which a worker counts as dead, and its runs go to others. The same for all processes.",
        show: |config| quoted(&times::written(config.dead_after)),
        set: |config, text| span(text, "1s", "1d").map(|value| config.dead_after = value),
    },
    Key {
        path: "worker.grace",
        doc: "How long a command, or a page of a feed, may take to end when its worker is told to.",
        show: |config| quoted(&times::written(config.grace)),
        set: |config, text| span(text, "0s", "1d").map(|value| config.grace = value),
    },
    Key {
        path: "upkeep.every",
        doc: "Time between two sweeps while workers live.",
        show: |config| quoted(&times::written(config.sweep_every)),
        set: |config, text| span(text, "100ms", "1h").map(|value| config.sweep_every = value),
    },
    Key {
        path: "upkeep.idle",
        doc: "Time between two sweeps when nothing happens.",
        show: |config| quoted(&times::written(config.sweep_idle)),
        set: |config, text| span(text, "100ms", "1h").map(|value| config.sweep_idle = value),
    },
    Key {
        path: "upkeep.retention",
        doc: "How long finished runs are kept, with their events and artifacts.",
        show: |config| quoted(&times::written(config.retention)),
        set: |config, text| span(text, "1h", "36500d").map(|value| config.retention = value),
    },
    Key {
        path: "alerts.queue-depth",
        doc: "More runs of a project or messages of a queue than these are an alert; 0 for never.",
        show: |config| config.alerts.queue_depth.to_string(),
        set: |config, text| number(text, 0, 1_000_000).map(|value| config.alerts.queue_depth = value),
    },
    Key {
        path: "alerts.stuck-after",
        doc: "A partition without progress for so long is an alert; 0s for never.",
        show: |config| quoted(&times::written(config.alerts.stuck_after)),
        set: |config, text| span(text, "0s", "30d").map(|value| config.alerts.stuck_after = value),
    },
    Key {
        path: "alerts.watermark-after",
        doc: "A watermark older than this is an alert; 0s for never.",
        show: |config| quoted(&times::written(config.alerts.watermark_after)),
        set: |config, text| span(text, "0s", "365d").map(|value| config.alerts.watermark_after = value),
    },
];

pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Every key there is.
fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(crate::config_sync::KEYS).chain(crate::config_server::KEYS)
}

/// Loads the configuration, or says everything that is wrong with it.
pub(crate) fn load(global: &Global) -> Result<Config, Failure> {
    let (config, faults) = read(global)?;
    if faults.is_empty() {
        return Ok(config);
    }
    Err(Failure::usage(format!("the configuration is wrong: {}", faults.join("; ")))
        .hint("tidemill config default shows every key"))
}

fn read(global: &Global) -> Result<(Config, Vec<String>), Failure> {
    let mut config = Config::default();
    let mut faults = Vec::new();
    if let Some(path) = file(global) {
        read_file(&path, &mut config, &mut faults)?;
    }
    for key in keys() {
        if let Some((name, value)) = environment::for_key(key.path)
            && let Err(problem) = (key.set)(&mut config, &value)
        {
            faults.push(format!("{name}: {problem}"));
        }
    }
    if let Some(database) = &global.database {
        config.database.clone_from(database);
    }
    if let Some(schema) = &global.schema {
        config.schema.clone_from(schema);
    }
    if config.beat * 3 > config.dead_after {
        faults.push("worker.beat: three beats must fit into worker.dead-after".to_owned());
    }
    faults.extend(config.partitions.fault());
    if let Some(path) = config.database.strip_prefix('@') {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("could not read the address from `{path}`: {error}")))?;
        text.trim().clone_into(&mut config.database);
    }
    Ok((config, faults))
}

fn file(global: &Global) -> Option<PathBuf> {
    let usual = Path::new("tidemill.toml");
    global.config.clone().or_else(|| usual.exists().then(|| usual.to_owned()))
}

fn read_file(path: &Path, config: &mut Config, faults: &mut Vec<String>) -> Result<(), Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("could not read `{shown}`: {error}")))?;
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            faults.push(format!("{shown}: {}", error.to_string().trim().replace('\n', " ")));
            return Ok(());
        }
    };
    for (section, values) in &table {
        let Some(values) = values.as_table() else {
            faults.push(format!("{section}: it must be a section such as [database]"));
            continue;
        };
        for (name, value) in values {
            let path = format!("{section}.{name}");
            if path == "alerts.targets" {
                crate::config_alerts::read(value, &mut config.alerts.targets, faults);
                continue;
            }
            let Some(key) = keys().find(|key| key.path == path) else {
                faults.push(format!("{path}: there is no such key"));
                continue;
            };
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(truth) => truth.to_string(),
                toml::Value::Float(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_)
                | toml::Value::Table(_) => {
                    faults.push(format!("{path}: it must be a text or a whole number"));
                    continue;
                }
            };
            if let Err(problem) = (key.set)(config, &text) {
                faults.push(format!("{path}: {problem}"));
            }
        }
    }
    Ok(())
}

/// Every key with its default, as a file.
fn default_text() -> String {
    let default = Config::default();
    let mut text = String::from(
        "# Tidemill's configuration. A flag comes before the environment (TIDEMILL_WORKER_BEAT for worker.beat),\n\
         # the environment before this file, this file before the default, which is what stands here.\n",
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

/// `config default` and `config check`.
pub(crate) fn command(command: &ConfigCommand, global: &Global, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Default => {
            out.line(default_text().trim_end());
        }
        ConfigCommand::Check => {
            load(global)?;
            if out.is_json() {
                out.json(&serde_json::json!({"ok": true}));
            } else {
                let place = file(global).map_or_else(
                    || "there is no configuration file, and the defaults".to_owned(),
                    |path| format!("`{}`", path.display()),
                );
                out.line(format!("{place} can be used as it is"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_core::queue::QueueSettings;

    fn default_queues() -> Vec<QueueSettings> {
        QueueSettings::defaults()
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        let mut config = Config { slots: 9, ..Config::default() };
        let path = std::env::temp_dir().join(format!("tidemill-default-{}.toml", std::process::id()));
        std::fs::write(&path, default_text()).unwrap();
        let mut faults = Vec::new();
        read_file(&path, &mut config, &mut faults).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(faults, Vec::<String>::new());
        let default = Config::default();
        for key in keys() {
            assert_eq!((key.show)(&config), (key.show)(&default), "{}", key.path);
        }
        assert!(
            config.queues.changed(&default_queues()).is_empty(),
            "the defaults are those of the database"
        );
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let path = std::env::temp_dir().join(format!("tidemill-faults-{}.toml", std::process::id()));
        std::fs::write(&path, "[worker]\nbeat = \"fast\"\nslot = 3\n[database]\nconnections = 0\n").unwrap();
        let mut faults = Vec::new();
        read_file(&path, &mut Config::default(), &mut faults).unwrap();
        std::fs::remove_file(&path).unwrap();
        faults.sort();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[2].contains("there is no such key"), "{faults:?}");
    }
}
