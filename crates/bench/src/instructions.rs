//! Instructions of the server and WAL per run: figures that do not depend on the load of the machine.
//!
//! One pgbench client calls the verbs through SQL, with prepared statements. The count of a run is the difference
//! between a long and a short session, divided by the difference of their lengths: start-up and planning cancel out.
//! Each session gets its own copy of one database, so that both find the same tables.

use crate::bench_cluster::BenchCluster;
use crate::callgrind::{self, Counts, Scope};
use crate::pgbench::{self, frozen};
use crate::report::log;
use crate::wal::{self, WalCost};
use anyhow::{Context as _, Result, bail};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tidemill_testkit::cluster::Database;

pub(crate) const USAGE: &str = "usage: instructions [--wal] [--profile] [--only a,b] [--json]
  --wal         also print the WAL by resource manager and record type
  --profile     also print the functions of the server with the most instructions per lifecycle
  --only a,b    empty, lifecycle, claim, batch, queue; and many, ops.queue_runs in batches of
                1,000, which is only measured if it is named
  --json        print the figures as JSON";

/// Queued runs in the database before each session.
const BACKLOG: u64 = 5_000;
/// Functions of a profile.
const PROFILE_LINES: usize = 25;

/// A script, and the lengths of its two sessions.
struct Measurement {
    name: &'static str,
    what: &'static str,
    /// Path of the script, relative to `crates/bench`.
    script: &'static str,
    /// Transactions of the short and of the long session. Plans are final after five executions.
    lengths: [u32; 2],
    /// Runs per transaction of the script.
    runs: u32,
    /// Transactions for the WAL figure, if there is one.
    wal_transactions: Option<u32>,
}

const MEASUREMENTS: [Measurement; 6] = [
    Measurement {
        name: "empty",
        what: "four empty calls",
        script: "frozen/empty_calls.sql",
        lengths: [50, 550],
        runs: 1,
        wal_transactions: None,
    },
    Measurement {
        name: "lifecycle",
        what: "queue, claim, start, finish: four calls, four commits",
        script: "frozen/lifecycle.sql",
        lengths: [50, 350],
        runs: 1,
        wal_transactions: Some(2_000),
    },
    Measurement {
        name: "claim",
        what: "claim and finish one: two calls, two commits",
        script: "frozen/claim_finish.sql",
        lengths: [50, 350],
        runs: 1,
        wal_transactions: Some(2_000),
    },
    Measurement {
        name: "batch",
        what: "claim and finish in batches of 100",
        script: "frozen/batch.sql",
        lengths: [10, 40],
        runs: 100,
        wal_transactions: Some(30),
    },
    Measurement {
        name: "queue",
        what: "queue one",
        script: "frozen/queue_one.sql",
        lengths: [50, 450],
        runs: 1,
        wal_transactions: Some(2_000),
    },
    Measurement {
        name: "many",
        what: "queue_runs in batches of 1,000",
        script: "sql/queue_many.sql",
        lengths: [10, 20],
        runs: 1_000,
        wal_transactions: Some(20),
    },
];

/// Options of the command line.
#[derive(Debug, Default)]
struct Options {
    wal: bool,
    profile: bool,
    only: Vec<String>,
    json: bool,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--wal" => options.wal = true,
                "--profile" => options.profile = true,
                "--json" => options.json = true,
                "--only" => {
                    let names = arguments.next().context("--only needs a value")?;
                    options.only = names.split(',').map(str::to_owned).collect();
                    let is_known = |name: &String| MEASUREMENTS.iter().any(|known| known.name == name);
                    if let Some(name) = options.only.iter().find(|name| !is_known(name)) {
                        bail!("unknown measurement `{name}`\n{USAGE}");
                    }
                }
                other => bail!("unknown option {other}\n{USAGE}"),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        let is_named = self.only.iter().any(|wanted| wanted == name);
        is_named || self.only.is_empty() && name != "many"
    }
}

/// Figures of one script.
struct Figures {
    name: &'static str,
    what: &'static str,
    instructions: f64,
    wal: Option<WalCost>,
}

/// Measures all scripts, and prints a table.
pub(crate) async fn all(arguments: impl Iterator<Item = String>) -> Result<()> {
    let options = Options::read(arguments)?;
    let mut cluster = BenchCluster::start_for_runs()?;
    let template = cluster.migrated_database().await?;
    log(&format!("queueing {BACKLOG} runs"));
    prepare(&template).await?;
    let mut measurements: Vec<&Measurement> =
        MEASUREMENTS.iter().filter(|measurement| options.wants(measurement.name)).collect();
    if options.wants("many") && !has_function(&template, "queue_runs").await? {
        log("skipped queue_runs: the schema has no function ops.queue_runs");
        measurements.retain(|measurement| measurement.name != "many");
    }

    let mut wal_costs = Vec::new();
    let mut breakdown = String::new();
    for measurement in &measurements {
        let Some(transactions) = measurement.wal_transactions else {
            wal_costs.push(None);
            continue;
        };
        log(&format!("WAL: {}", measurement.what));
        let database = cluster.copy(&template)?;
        let script = path(measurement.script);
        let cost = wal::measure(&cluster, &database, &script, transactions, measurement.runs).await?;
        if options.wal {
            write!(breakdown, "\n{}\n{}", measurement.what, cost.breakdown(&cluster)?)?;
        }
        wal_costs.push(Some(cost));
    }

    // Copies are made before the restart, because they would take minutes under valgrind.
    let mut databases = Vec::new();
    for _ in &measurements {
        databases.push([cluster.copy(&template)?, cluster.copy(&template)?]);
    }
    log("restarting PostgreSQL under valgrind");
    let directory = cluster.directory().to_owned();
    cluster.restart_under(callgrind::wrapper(&directory)?)?;
    let mut figures = Vec::new();
    let mut profile = String::new();
    for ((measurement, databases), wal) in measurements.iter().zip(&databases).zip(wal_costs) {
        log(&format!("instructions: {}", measurement.what));
        let counts = measurement.count(&directory, databases)?;
        let instructions = measurement.per_run(counts[0].instructions, counts[1].instructions);
        if options.profile && measurement.name == "lifecycle" {
            profile = measurement.profile(&counts)?;
        }
        log(&format!("  {instructions:.0} instructions per run"));
        figures.push(Figures { name: measurement.name, what: measurement.what, instructions, wal });
    }
    print(&figures, options.json, &[&profile, &breakdown]);
    Ok(())
}

fn path(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(script)
}

/// Fills the database, and adds the empty function.
async fn prepare(database: &Database) -> Result<()> {
    pgbench::psql(&database.url, &frozen("fill_runs.sql"), BACKLOG)?;
    pgbench::psql(&database.url, &frozen("empty_function.sql"), 0)?;
    let mut conn = PgConnection::connect(&database.url).await?;
    // Under valgrind every search takes longer than the limit after which a claim saves its position.
    let functions: Vec<String> = sqlx::query_scalar(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p
          WHERE p.pronamespace = 'ops'::regnamespace AND p.prosrc LIKE '%interval ''3 milliseconds''%'",
    )
    .fetch_all(&mut conn)
    .await?;
    if functions.is_empty() {
        log(
            "no function has the time limit `interval '3 milliseconds'`; check that claims save no positions",
        );
    }
    for definition in functions {
        let patched = definition.replace("interval '3 milliseconds'", "interval '1 hour'");
        conn.execute(AssertSqlSafe(patched)).await.context("could not lift the time limit of a search")?;
    }
    conn.close().await?;
    Ok(())
}

pub(crate) async fn has_function(database: &Database, name: &str) -> Result<bool> {
    let mut conn = PgConnection::connect(&database.url).await?;
    let query =
        "SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'ops'::regnamespace AND proname = $1)";
    let exists = sqlx::query_scalar(query).bind(name).fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(exists)
}

impl Measurement {
    /// Counts the short and the long session.
    fn count(&self, directory: &Path, databases: &[Database; 2]) -> Result<[Counts; 2]> {
        let script = path(self.script);
        let count = |database: &Database, length| {
            callgrind::count(directory, || pgbench::repeat(&database.url, &script, length))
        };
        Ok([count(&databases[0], self.lengths[0])?, count(&databases[1], self.lengths[1])?])
    }

    /// Divides the difference between the sessions by the difference of their runs.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn per_run(&self, short: u64, long: u64) -> f64 {
        (long as f64 - short as f64) / f64::from((self.lengths[1] - self.lengths[0]) * self.runs)
    }

    /// Lists the functions with the most instructions per run.
    fn profile(&self, counts: &[Counts; 2]) -> Result<String> {
        let mut text = String::new();
        for (scope, title) in [(Scope::Exclusive, "exclusive"), (Scope::Inclusive, "inclusive")] {
            let (short, long) = (counts[0].by_function(scope)?, counts[1].by_function(scope)?);
            let mut functions: Vec<(f64, &String)> = long
                .iter()
                .map(|(name, count)| (self.per_run(short.get(name).copied().unwrap_or(0), *count), name))
                .collect();
            functions.sort_by(|one, other| other.0.total_cmp(&one.0));
            writeln!(text, "\n{title} instructions per lifecycle")?;
            for (count, name) in functions.iter().take(PROFILE_LINES) {
                writeln!(text, "{count:>12.0}  {name}")?;
            }
        }
        Ok(text)
    }
}

fn print(figures: &[Figures], json: bool, texts: &[&str]) {
    let mut out = std::io::stdout().lock();
    if json {
        let lines: Vec<_> = figures
            .iter()
            .map(|figure| {
                serde_json::json!({"name": figure.name, "what": figure.what,
                    "instructions_per_run": figure.instructions.round(),
                    "wal_bytes_per_run": figure.wal.as_ref().map(|wal| wal.bytes.round()),
                    "vacuum_wal_bytes_per_run": figure.wal.as_ref().map(|wal| wal.vacuum_bytes.round())})
            })
            .collect();
        let _ = writeln!(out, "{}", serde_json::json!({"lines": lines}));
        return;
    }
    let _ = writeln!(out, "| per run | instructions | WAL | WAL of the vacuum |");
    let _ = writeln!(out, "|---|---|---|---|");
    for figure in figures {
        let (wal, vacuum) = match &figure.wal {
            Some(wal) => (format!("{:.0} B", wal.bytes), format!("{:.0} B", wal.vacuum_bytes)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let millions = figure.instructions / 1e6;
        let _ = writeln!(out, "| {} | {millions:.3} million | {wal} | {vacuum} |", figure.what);
    }
    for text in texts {
        let _ = write!(out, "{text}");
    }
}
