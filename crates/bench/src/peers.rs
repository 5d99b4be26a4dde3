//! Other queues on the same server, in turn with the bare table and with Tidemill.
//!
//! pgbench runs the bare table and Tidemill. Each other queue has a program of its own in `peers/`, with its own worker
//! loop; `cargo xtask bench peers` builds them. Every queue is warmed up and filled, then vacuumed and analysed, then
//! measured. WAL and processor time include a VACUUM and a CHECKPOINT after the measurement. The processor time is that
//! of the server: the programs of the queues use more or less besides.

use crate::Plan;
use crate::bench_cluster::BenchCluster;
use crate::floor::{self, Backlog, Floor, WARM_UP};
use crate::hot_path::{Position, queue_runs};
use crate::instructions::has_function;
use crate::pgbench::{self, frozen};
use crate::report::{log, median};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tidemill_testkit::cluster::Database;

/// Programs of the other queues, and their names.
const PEERS: [(&str, &str); 3] = [
    ("peer-graphile", "graphile_worker 0.14.1"),
    ("peer-river", "riverqueue 0.5.0"),
    ("peer-awa", "awa 0.6.9"),
];

/// Work that each queue does.
struct Work {
    /// Name for `--only` and for the programs.
    name: &'static str,
    what: &'static str,
    connections: u32,
    /// Jobs per transaction of the scripts.
    jobs: f64,
    floor: Floor,
    /// Script of Tidemill below `crates/bench`.
    script: &'static str,
    backlog: Backlog,
}

const WORKS: [Work; 3] = [
    Work {
        name: "insert",
        what: "insert one, 16 callers",
        connections: 16,
        jobs: 1.0,
        floor: Floor { script: "floor_queue_one.sql", backlog: Backlog::Constant(1_000) },
        script: "frozen/queue_one.sql",
        backlog: Backlog::Constant(1_000),
    },
    Work {
        name: "bulk",
        what: "insert 1,000 at once, 4 callers",
        connections: 4,
        jobs: 1_000.0,
        floor: Floor { script: "floor_queue_many.sql", backlog: Backlog::Constant(1_000) },
        script: "sql/queue_many.sql",
        backlog: Backlog::Constant(1_000),
    },
    Work {
        name: "drain",
        what: "drain; the scripts use batches of 100 and 8 connections",
        connections: 8,
        jobs: 100.0,
        floor: floor::BATCH,
        script: "frozen/batch.sql",
        backlog: Backlog::PerSecond(60_000),
    },
];

/// One column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Contender {
    BareTable,
    Tidemill,
    Peer { program: PathBuf, name: &'static str },
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Self::BareTable => "bare table",
            Self::Tidemill => "Tidemill",
            Self::Peer { name, .. } => name,
        }
    }
}

/// Jobs of one measurement.
#[derive(Debug, Clone, Copy)]
struct Throughput {
    rate: f64,
    wal_bytes_per_job: f64,
    cpu_micros_per_job: f64,
}

/// Measures each kind of work with each queue, and prints a table.
pub(crate) async fn all(plan: &Plan) -> Result<()> {
    let contenders = contenders();
    let cluster = BenchCluster::start_for_runs()?;
    let time = plan.time_or(10);
    let mut rows = Vec::new();
    for work in WORKS.iter().filter(|work| plan.wants(work.name)) {
        log(work.what);
        let template = queue_runs(&cluster, work.backlog.runs(time)).await?;
        let skips_ours = work.name == "bulk" && !has_function(&template, "queue_runs").await?;
        if skips_ours {
            log("  skipped Tidemill: the schema has no function ops.queue_runs");
        }
        let mut measured: Vec<Vec<Throughput>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.pairs {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                if skips_ours && *contender == Contender::Tidemill {
                    continue;
                }
                let name = contender.name();
                match work.measure(&cluster, &template, contender, time).await {
                    Ok(done) => {
                        log(&format!("  {name}: {}", done.shown()));
                        measured.push(done);
                    }
                    Err(error) => log(&format!("  skipped {name}: {error:#}")),
                }
            }
        }
        rows.push((work.what, measured));
    }
    print(&contenders, &rows, plan.json);
    Ok(())
}

/// Returns the bare table, Tidemill, and the peers whose programs exist.
fn contenders() -> Vec<Contender> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/target/release");
    let mut contenders = vec![Contender::BareTable, Contender::Tidemill];
    for (file, name) in PEERS {
        let program = folder.join(file);
        if program.exists() {
            contenders.push(Contender::Peer { program, name });
        } else {
            log(&format!(
                "skipped {name}: {} was not built; run `cargo xtask bench peers`",
                program.display()
            ));
        }
    }
    contenders
}

impl Work {
    async fn measure(
        &self,
        cluster: &BenchCluster,
        template: &Database,
        contender: &Contender,
        time: Duration,
    ) -> Result<Throughput> {
        match contender {
            Contender::BareTable => {
                let database = self.floor.database(cluster, time)?;
                self.run_script(cluster, &database, &frozen(self.floor.script), time).await
            }
            Contender::Tidemill => {
                let database = cluster.copy(template)?;
                let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.script);
                self.run_script(cluster, &database, &script, time).await
            }
            Contender::Peer { program, .. } => {
                let database = cluster.empty_database()?;
                run_peer(cluster, program, self.name, &database, time).await
            }
        }
    }

    async fn run_script(
        &self,
        cluster: &BenchCluster,
        database: &Database,
        script: &Path,
        time: Duration,
    ) -> Result<Throughput> {
        pgbench::rate(&database.url, script, self.connections, WARM_UP.as_secs())?;
        let meter = Meter::start(cluster, database).await?;
        let done = pgbench::run_for(&database.url, script, self.connections, time.as_secs().max(1))?;
        meter.end(self.jobs * done.transactions, self.jobs * done.rate).await
    }
}

impl Throughput {
    fn shown(&self) -> String {
        let Self { rate, wal_bytes_per_job, cpu_micros_per_job } = self;
        format!("{rate:.0}/s, {wal_bytes_per_job:.0} B, {cpu_micros_per_job:.0} µs")
    }
}

/// The cost of a measurement, counted alike for each queue.
struct Meter {
    conn: PgConnection,
    server: u32,
    before: Position,
}

impl Meter {
    /// Vacuums and analyses the database, and reads the counters.
    async fn start(cluster: &BenchCluster, database: &Database) -> Result<Self> {
        let server = cluster.process_id()?;
        let mut conn = PgConnection::connect(&database.url).await?;
        conn.execute("VACUUM ANALYZE").await?;
        let before = Position::read(&mut conn, server).await?;
        Ok(Self { conn, server, before })
    }

    async fn end(mut self, jobs: f64, rate: f64) -> Result<Throughput> {
        let after = Position::read_after_vacuum(&mut self.conn, self.server).await?;
        self.conn.close().await?;
        let jobs = f64::max(jobs, 1.0);
        Ok(Throughput {
            rate,
            wal_bytes_per_job: (after.wal_bytes - self.before.wal_bytes) / jobs,
            cpu_micros_per_job: 1e6 * (after.cpu_secs - self.before.cpu_secs) / jobs,
        })
    }
}

/// The result that a program prints.
#[derive(Deserialize)]
struct Done {
    jobs: f64,
    seconds: f64,
}

/// Starts a program, and measures from the time when it is ready.
async fn run_peer(
    cluster: &BenchCluster,
    program: &Path,
    work: &str,
    database: &Database,
    time: Duration,
) -> Result<Throughput> {
    let mut child = Command::new(program)
        .args([work, &database.url, &time.as_secs().max(1).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start {}", program.display()))?;
    let mut input = child.stdin.take().context("standard input is a pipe")?;
    let mut lines = BufReader::new(child.stdout.take().context("standard output is a pipe")?).lines();
    let ready = lines.next().context("the program failed before it was ready")??;
    ensure!(ready == "ready", "the program printed `{ready}` instead of `ready`");
    let meter = Meter::start(cluster, database).await?;
    writeln!(input)?;
    let line = lines.next().context("the program failed before it printed a result")??;
    child.wait()?;
    let done: Done = serde_json::from_str(&line).with_context(|| format!("unexpected result `{line}`"))?;
    meter.end(done.jobs, done.jobs / done.seconds).await
}

fn print(contenders: &[Contender], rows: &[(&str, Vec<Vec<Throughput>>)], json: bool) {
    let mut out = std::io::stdout().lock();
    let middle = |measured: &[Throughput], value: fn(&Throughput) -> f64| {
        median(&measured.iter().map(value).collect::<Vec<_>>())
    };
    if json {
        let lines: Vec<_> = rows
            .iter()
            .flat_map(|(what, measured)| contenders.iter().zip(measured).map(move |pair| (what, pair)))
            .map(|(what, (contender, measured))| {
                let rates: Vec<f64> = measured.iter().map(|done| done.rate.round()).collect();
                serde_json::json!({"what": what, "queue": contender.name(), "rates": rates,
                    "median": middle(measured, |done| done.rate).round(),
                    "wal_bytes_per_job": middle(measured, |done| done.wal_bytes_per_job).round(),
                    "cpu_micros_per_job": middle(measured, |done| done.cpu_micros_per_job).round()})
            })
            .collect();
        let _ = writeln!(out, "{}", serde_json::json!({"lines": lines}));
        return;
    }
    let names: Vec<&str> = contenders.iter().map(Contender::name).collect();
    let _ = writeln!(
        out,
        "| median of {} rounds: rate, WAL and server CPU per job | {} |",
        rows.first().map_or(0, |row| row.1[0].len()),
        names.join(" | ")
    );
    let _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
    for (what, measured) in rows {
        let cells: Vec<String> = measured
            .iter()
            .map(|measured| {
                if measured.is_empty() {
                    return "–".to_owned();
                }
                let middle = Throughput {
                    rate: middle(measured, |done| done.rate),
                    wal_bytes_per_job: middle(measured, |done| done.wal_bytes_per_job),
                    cpu_micros_per_job: middle(measured, |done| done.cpu_micros_per_job),
                };
                middle.shown()
            })
            .collect();
        let _ = writeln!(out, "| {what} | {} |", cells.join(" | "));
    }
}
