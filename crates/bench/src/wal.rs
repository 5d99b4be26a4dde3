//! WAL of a script, without page images: the server runs with `full_page_writes` off while it is measured.

use crate::bench_cluster::BenchCluster;
use crate::pgbench;
use anyhow::{Context as _, Result, ensure};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::path::Path;
use std::process::Command;
use tidemill_testkit::cluster::Database;

/// Transactions before the measurement: they create plans and the first rows of each table.
const WARM_UP: u32 = 10;

/// WAL of one run.
#[derive(Debug)]
pub(crate) struct WalCost {
    /// Bytes per run until the last commit.
    pub(crate) bytes: f64,
    /// Bytes per run of the vacuum that follows.
    pub(crate) vacuum_bytes: f64,
    start: String,
    end: String,
    runs: f64,
}

/// Runs a script in one session, and a vacuum after it, and returns the WAL that they wrote.
pub(crate) async fn measure(
    cluster: &BenchCluster,
    database: &Database,
    script: &Path,
    transactions: u32,
    runs: u32,
) -> Result<WalCost> {
    let mut conn = PgConnection::connect(&database.url).await?;
    conn.execute("ALTER SYSTEM SET full_page_writes = off").await?;
    conn.execute("SELECT pg_reload_conf()").await?;
    pgbench::repeat(&database.url, script, WARM_UP)?;
    conn.execute("VACUUM").await?;
    conn.execute("CHECKPOINT").await?;
    let start = position(&mut conn).await?;
    pgbench::repeat(&database.url, script, transactions)?;
    let end = position(&mut conn).await?;
    conn.execute("VACUUM").await?;
    let vacuumed = position(&mut conn).await?;
    conn.execute("ALTER SYSTEM RESET full_page_writes").await?;
    conn.execute("SELECT pg_reload_conf()").await?;
    conn.close().await?;
    let runs = f64::from(transactions * runs);
    let bytes = difference(&cluster.url(), &start, &end).await? / runs;
    let vacuum_bytes = difference(&cluster.url(), &end, &vacuumed).await? / runs;
    Ok(WalCost { bytes, vacuum_bytes, start, end, runs })
}

async fn position(conn: &mut PgConnection) -> Result<String> {
    Ok(sqlx::query_scalar("SELECT pg_current_wal_insert_lsn()::text").fetch_one(conn).await?)
}

async fn difference(url: &str, start: &str, end: &str) -> Result<f64> {
    let mut conn = PgConnection::connect(url).await?;
    // As text: the driver has no type for positions.
    let query = "SELECT ($2::text::pg_lsn - $1::text::pg_lsn)::float8";
    let bytes = sqlx::query_scalar(query).bind(start).bind(end).fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(bytes)
}

/// A type of WAL records, with its number and bytes.
#[derive(Debug, PartialEq)]
struct RecordType {
    name: String,
    count: f64,
    bytes: f64,
}

impl WalCost {
    /// Lists records and bytes per run by resource manager and record type.
    pub(crate) fn breakdown(&self, cluster: &BenchCluster) -> Result<String> {
        let output = Command::new(pgbench::program("pg_waldump")?)
            .arg("--stats=record")
            .args(["--start", &self.start, "--end", &self.end, "--path"])
            .arg(cluster.directory().join("data/pg_wal"))
            .output()
            .context("could not run pg_waldump")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "pg_waldump failed: {}", error.trim());
        let mut types: Vec<RecordType> =
            String::from_utf8_lossy(&output.stdout).lines().filter_map(record_type).collect();
        types.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
        let mut text = String::from("   records      bytes  per run\n");
        for record in types {
            let line = format!(
                "{:>10.2} {:>10.1}  {}\n",
                record.count / self.runs,
                record.bytes / self.runs,
                record.name
            );
            text.push_str(&line);
        }
        Ok(text)
    }
}

/// Reads a line such as `Heap/INSERT   8 ( 1.00)   500 ( 2.00)   0 ( 0.00)   500 ( 2.00)`.
fn record_type(line: &str) -> Option<RecordType> {
    let (name, rest) = line.split_once(' ')?;
    if !name.contains('/') {
        return None;
    }
    let numbers: Vec<f64> =
        rest.split(['(', ')']).step_by(2).filter_map(|number| number.trim().parse().ok()).collect();
    let [count, _records, _images, bytes] = numbers[..] else { return None };
    (count > 0.0).then(|| RecordType { name: name.to_owned(), count, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_statistics_is_read_by_type() {
        let line = "Heap/INSERT             8 ( 10.00)        500 ( 20.00)     0 (  0.00)     512 ( 20.00)";
        let expected = RecordType { name: "Heap/INSERT".to_owned(), count: 8.0, bytes: 512.0 };
        assert_eq!(record_type(line), Some(expected));
        assert_eq!(record_type("Heap/DELETE  0 ( 0.00)  0 ( 0.00)  0 ( 0.00)  0 ( 0.00)"), None);
        assert_eq!(record_type("Type     N      (%)          Record size      (%)"), None);
        assert_eq!(record_type("Total    9      500 [99.00%]  0 [0%]  500 [100%]"), None);
    }
}
