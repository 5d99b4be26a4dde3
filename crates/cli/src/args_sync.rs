//! The command line of syncs.

use crate::times::{self, When};
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The demo.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Stones that the supplier has.
    #[arg(long, default_value_t = 50_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(100..=2_000_000))]
    pub(crate) stones: u32,
    /// Show runs instead: three workers, one of them killed, every request ends once.
    #[arg(long)]
    pub(crate) runs: bool,
    /// Keep the demo's database at this path.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Leave the console open on the demo's data, from its beginning until Ctrl-C.
    #[arg(long)]
    pub(crate) serve: bool,
    /// Where the console is; 127.0.0.1:7171 unless configured otherwise.
    #[arg(long, value_name = "ADDR", requires = "serve")]
    pub(crate) listen: Option<SocketAddr>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Add a feed, or change how it is reached.
    Add(Box<FeedAdd>),
    /// List feeds.
    List,
    /// Show a feed: how far it is, whether it answers, its last syncs.
    Show {
        /// The feed.
        name: String,
    },
    /// Bring a feed in: what has changed since the watermark, or everything.
    Sync {
        /// The feed.
        name: String,
        /// Everything.
        #[arg(long)]
        full: bool,
        /// Follow it to its end; the exit code tells how it went.
        #[arg(long)]
        wait: bool,
        /// Makes asking twice the same as asking once.
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Hold a feed's pages back.
    Pause {
        /// The feed.
        name: String,
        /// Why, for the others.
        #[arg(long)]
        note: Option<String>,
        /// When it ends by itself: a time, or a duration from now such as 2h.
        #[arg(long, value_parser = times::when)]
        until: Option<When>,
    },
    /// Let a feed's pages be carried out again.
    Resume {
        /// The feed.
        name: String,
    },
    /// Show a feed's watermark and its changes, or move it.
    Watermark {
        /// The feed.
        name: String,
        /// Move it to this time.
        #[arg(long, value_parser = times::when, conflicts_with = "import")]
        set: Option<When>,
        /// Move it to what this JSON file says: {"lastUpdatedAt": …}.
        #[arg(long, value_name = "FILE")]
        import: Option<PathBuf>,
        /// Why, for the record.
        #[arg(long)]
        note: Option<String>,
    },
    /// Show what the last scan counted, and what became of it.
    Heatmap {
        /// The feed.
        name: String,
    },
    /// List records that are not in the table, and why.
    Rejects {
        /// The feed; all of them where there is none.
        name: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// List ranges that the watermark passed without covering them.
    Gaps {
        /// The feed; all of them where there is none.
        name: Option<String>,
        /// Those that were covered since, too.
        #[arg(long)]
        all: bool,
    },
}

/// A feed to add.
#[derive(Debug, Args)]
pub(crate) struct FeedAdd {
    /// Its name: lower-case letters, digits and dashes.
    pub(crate) name: String,
    /// How it is spoken to.
    #[arg(long, default_value = "nivoda")]
    pub(crate) kind: String,
    /// Where it is.
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: String,
    /// The account.
    #[arg(long, value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// The environment variable that holds the password, wherever workers run. The password itself is never kept.
    #[arg(long, value_name = "VAR")]
    pub(crate) password_env: Option<String>,
    /// The project that its runs belong to.
    #[arg(long, default_value = "default", value_name = "P")]
    pub(crate) project: String,
    /// When it is brought in by itself: five or six fields of cron.
    #[arg(long, value_name = "CRON")]
    pub(crate) schedule: Option<String>,
    /// When all of it is read by itself, so that what it no longer offers is marked as deleted.
    #[arg(long, value_name = "CRON")]
    pub(crate) full_schedule: Option<String>,
    /// On which wall clock.
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    pub(crate) time_zone: String,
    /// Requests per second, over all workers; 0 for no limit.
    #[arg(long, default_value_t = tidemill_core::limits::FEED_RATE, value_name = "N")]
    pub(crate) rate: u32,
    /// Where a copy of the watermark goes: a path, s3://bucket/key or az://container/key.
    #[arg(long, value_name = "URL")]
    pub(crate) watermark_copy: Option<String>,
    /// What else the kind understands, as a JSON object.
    #[arg(long, value_parser = crate::args::json, value_name = "JSON")]
    pub(crate) settings: Option<tidemill_core::Json>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// List the last syncs.
    List {
        /// Of this feed.
        #[arg(long)]
        feed: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show a sync and its partitions.
    Show {
        /// The sync, or one of its runs.
        id: String,
    },
    /// Read the failed partitions of a sync again, from where they stopped.
    Retry {
        /// The sync, or one of its runs.
        id: String,
        /// From their beginning.
        #[arg(long)]
        restart: bool,
        /// Restart only this partition.
        #[arg(long, value_name = "ID", requires = "restart")]
        partition: Option<String>,
    },
    /// Stop a sync.
    Cancel {
        /// The sync, or one of its runs.
        id: String,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Go on with a consolidation that was given up.
    Consolidate {
        /// The sync, or one of its runs.
        id: String,
        /// In spite of failed partitions: what is there is brought in, and the watermark stays.
        #[arg(long)]
        force: bool,
        /// Move the watermark past them, and note the gaps for the next sync to cover.
        #[arg(long, requires = "force")]
        advance: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule. The first that fits, by ascending priority, prices a stone.
    Add(Box<RuleAdd>),
    /// List rules in the order in which they are tried.
    List,
    /// Remove a rule.
    Remove {
        /// Its number.
        id: i64,
    },
    /// Add the rules of a JSON file: a list of objects as `rule list --json` prints them.
    Import {
        /// The file.
        file: PathBuf,
        /// Remove the rules that are there.
        #[arg(long)]
        replace: bool,
    },
    /// Price the stones of a feed by the rules as they stand now, without fetching anything.
    Apply {
        /// The feed.
        feed: String,
        /// Stones that are priced with one request.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        batch: Option<u16>,
    },
    /// Which rule would price such a stone, and how.
    Test(Box<RuleTest>),
}

/// A rule to add.
#[derive(Debug, Args)]
pub(crate) struct RuleAdd {
    /// The smaller is tried first.
    #[arg(long, default_value_t = 100)]
    pub(crate) priority: i32,
    /// Selling price by feed price, such as 1.15.
    #[arg(long, value_parser = ratio)]
    pub(crate) markup: i32,
    /// The rating that it gives, 1 to 10.
    #[arg(long)]
    pub(crate) rating: Option<i16>,
    /// Only stones of this feed.
    #[arg(long)]
    pub(crate) feed: Option<String>,
    /// Only stones of this type: natural, lab or fancy.
    #[arg(long)]
    pub(crate) stone_type: Option<tidemill_core::pricing::StoneType>,
    /// Only stones that were, or were not, grown in a laboratory.
    #[arg(long, value_name = "true|false")]
    pub(crate) lab_grown: Option<bool>,
    /// Only stones of this shape.
    #[arg(long = "shape", value_name = "SHAPE")]
    pub(crate) shapes: Vec<String>,
    /// Only stones of so many carats or more.
    #[arg(long, value_parser = hundredths)]
    pub(crate) carat_min: Option<i64>,
    /// Only stones of so many carats or less.
    #[arg(long, value_parser = hundredths)]
    pub(crate) carat_max: Option<i64>,
    /// Only stones for which the feed asks so many dollars or more.
    #[arg(long, value_parser = hundredths)]
    pub(crate) price_min: Option<i64>,
    /// Only stones for which the feed asks so many dollars or less.
    #[arg(long, value_parser = hundredths)]
    pub(crate) price_max: Option<i64>,
}

/// A stone to try the rules on.
#[derive(Debug, Args)]
pub(crate) struct RuleTest {
    /// Its feed.
    #[arg(long)]
    pub(crate) feed: String,
    /// What the feed asks, in dollars.
    #[arg(long, value_parser = hundredths)]
    pub(crate) price: i64,
    /// Its weight.
    #[arg(long, value_parser = hundredths)]
    pub(crate) carats: i64,
    /// Its shape.
    #[arg(long, default_value = "ROUND")]
    pub(crate) shape: String,
    /// Whether it was grown in a laboratory.
    #[arg(long)]
    pub(crate) lab_grown: bool,
    /// Its fancy colour.
    #[arg(long)]
    pub(crate) fancy_color: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues, what is in them, and how they treat it.
    List,
    /// Show the messages of a queue without taking them.
    Peek {
        /// The queue.
        queue: String,
        /// At most so many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// List dead letters.
    Dead {
        /// The queue.
        queue: String,
        /// At most so many.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Send dead letters again.
    Replay {
        /// The queue.
        queue: String,
        /// The messages.
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
        ids: Vec<String>,
        /// All of them.
        #[arg(long)]
        all: bool,
    },
}

/// Workers: this one of pages, or those that are there.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Workers {
    #[command(subcommand)]
    pub(crate) command: Option<WorkerCommand>,
    #[command(flatten)]
    pub(crate) worker: Worker,
    #[command(flatten)]
    pub(crate) watched: crate::args_server::Watched,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List workers of every kind, and whether they are there.
    List,
    /// Let a worker take nothing new; what it has goes on, and once that has ended, so does the worker.
    Drain {
        /// The worker: its name, or its id.
        worker: String,
        /// Let it take work again.
        #[arg(long)]
        undo: bool,
    },
}

/// How the scheduler divides a feed. Each flag comes before the configuration.
#[derive(Debug, Args)]
pub(crate) struct PartitionFlags {
    /// Records that a partition should have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) partition_target: Option<u32>,
    /// Records that a partition has at the least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) partition_min: Option<u32>,
    /// Partitions of a full sync, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) partitions_full: Option<u32>,
    /// Partitions of an incremental sync, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) partitions_incremental: Option<u32>,
}

/// A worker of pages.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// Pages at a time, at the least.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) pages_min: usize,
    /// Pages at a time, at the most.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub(crate) pages_max: usize,
    /// Do what is there, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

/// A stand-in supplier.
#[derive(Debug, Args)]
pub(crate) struct Supplier {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:8700", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// How many stones it has.
    #[arg(long, default_value_t = 50_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    pub(crate) stones: u32,
    /// What everything about them follows from.
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(crate) seed: u64,
    /// The one account that it accepts; any account without it.
    #[arg(long, requires = "password_env", value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// The environment variable that holds the account's password.
    #[arg(long, requires = "username", value_name = "VAR")]
    pub(crate) password_env: Option<String>,
    /// How it misbehaves, as a JSON object: see /admin/behaviour.
    #[arg(long, value_parser = crate::args::json, value_name = "JSON")]
    pub(crate) behaviour: Option<tidemill_core::Json>,
    /// How its stones change by themselves, as a JSON object: see /admin/churn.
    #[arg(long, value_parser = crate::args::json, value_name = "JSON")]
    pub(crate) churn: Option<tidemill_core::Json>,
}

/// A number with two decimals at the most, in hundredths.
fn hundredths(text: &str) -> Result<i64, String> {
    decimals(text, 2)
}

/// A number with four decimals at the most, in ten-thousandths.
fn ratio(text: &str) -> Result<i32, String> {
    i32::try_from(decimals(text, 4)?).map_err(|_| "it is too large".to_owned())
}

/// A number with so many decimals at the most, as a whole number: money never passes through a float.
fn decimals(text: &str, places: u32) -> Result<i64, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let bad = || format!("`{text}` is no number with at most {places} decimals");
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > places as usize || whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(bad());
    }
    let padded = format!("{fraction:0<width$}", width = places as usize);
    let scaled = whole.parse::<i64>().ok().and_then(|whole| whole.checked_mul(10_i64.pow(places)));
    let total = scaled.and_then(|whole| whole.checked_add(padded.parse().unwrap_or(0)));
    total.filter(|total| *total <= 100_000_000_000_000).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_without_a_float() {
        assert_eq!(hundredths("12.3"), Ok(1_230));
        assert_eq!(hundredths("0.07"), Ok(7));
        assert_eq!(hundredths("1000000"), Ok(100_000_000));
        assert_eq!(ratio("1.15"), Ok(11_500));
        for bad in ["", ".5", "-1", "1.234", "1e3", "1,5", "99999999999999999999"] {
            assert!(hundredths(bad).is_err(), "{bad}");
        }
    }
}
