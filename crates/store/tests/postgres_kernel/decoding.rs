//! Logical decoding of runs and their steps, on a server with `wal_level = logical`.

use crate::Kernel;
use sqlx::Row as _;
use tidemill_testkit::cluster::{Cluster, Options};
use tidemill_testkit::interface::{Fixture, PlainSql};

/// Returns the changes of a table since the last call, as `test_decoding` writes them.
async fn changes(kernel: &Kernel, table: &str) -> Vec<String> {
    let rows = kernel.rows("SELECT data FROM pg_logical_slot_get_changes('runs', NULL, NULL)").await;
    let prefix = format!("table ops.{table}: ");
    rows.iter().filter_map(|row| row.get::<String, _>(0).strip_prefix(&prefix).map(str::to_owned)).collect()
}

async fn open(cluster: &Cluster) -> Kernel {
    let fixture = Fixture::open_on(&cluster.url("postgres")).await;
    fixture.store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
    let PlainSql::Postgres(pool) = fixture.plain.clone() else { panic!("this is PostgreSQL") };
    let kernel = Kernel { _fixture: fixture, pool };
    kernel.execute("SELECT pg_create_logical_replication_slot('runs', 'test_decoding')").await;
    kernel
}

/// A subscriber sees each state of a run in order. Removed runs and their steps are published too, although the steps
/// have no primary key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decoded_runs_show_every_state() {
    // Only flushed changes are decoded.
    let settings = [("wal_level", "logical"), ("synchronous_commit", "on")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = tokio::task::spawn_blocking(move || {
        Cluster::start(&Options { settings, ..Options::default() }).expect("a server starts")
    })
    .await
    .unwrap();
    let kernel = open(&cluster).await;
    kernel.execute("CREATE PUBLICATION everything FOR ALL TABLES").await;
    let run = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    kernel.execute(&format!("SELECT ops.start_run('{run}')")).await;
    kernel.execute(&format!("SELECT ops.finish_run('{run}', 'success')")).await;
    let found = changes(&kernel, "runs").await;
    let states: Vec<(&str, bool)> = ["queued", "claimed", "running", "success"]
        .into_iter()
        .zip(&found)
        .map(|(status, change)| (status, change.contains(&format!("status[text]:'{status}'"))))
        .collect();
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(states.iter().all(|(_, is_shown)| *is_shown), "{states:?} {found:#?}");
    assert!(found[0].starts_with("INSERT: ") && found[3].starts_with("UPDATE: "), "{found:#?}");
    assert!(found.iter().all(|change| change.contains(&run)), "{found:#?}");

    let other = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    kernel.execute(&format!("SELECT ops.finish_runs('{{{other}}}', '{{success}}', '{{\"{{}}\"}}')")).await;
    let steps = changes(&kernel, "run_steps").await;
    let codes: Vec<bool> =
        ["q", "c", "S"].iter().zip(&steps).map(|(step, row)| row.contains(&format!("'{step}'"))).collect();
    assert_eq!(codes, [true; 3], "{steps:#?}");

    kernel.execute(&format!("DELETE FROM ops.runs WHERE run_id IN ('{run}', '{other}')")).await;
    kernel.execute(&format!("DELETE FROM ops.run_steps WHERE run_id = '{run}'")).await;
    let removed = changes(&kernel, "run_steps").await;
    assert_eq!(removed.len(), 4, "{removed:#?}");
    assert!(removed.iter().all(|row| row.starts_with("DELETE: ") && row.contains(&run)), "{removed:#?}");
    kernel.execute("SELECT pg_drop_replication_slot('runs')").await;
}
