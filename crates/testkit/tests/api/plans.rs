//! Lists of runs are found by an index, whichever filter is given: the databases say so themselves.

use crate::doorway::Doorway;
use tidemill_core::run::{Lane, RunFilter, RunState};
use tidemill_testkit::door::{Kind, at};

/// Runs that every plan is made for.
const RUNS: u32 = 20_000;

/// Fills the table: ended runs of two projects, many of which failed, and a few of each rare kind.
async fn fill(door: &Doorway) {
    let names = ["staging", "production", "rare"].map(str::to_owned).to_vec();
    door.stage.store.create_project("shop", names, Some(at(0))).await.expect("the environment is made");
    let moment = if door.stage.kind == Kind::Sqlite { "1000000" } else { "now()" };
    let (series, text) = match door.stage.kind {
        Kind::Sqlite => (
            format!(
                "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {RUNS}) SELECT n FROM s)"
            ),
            "printf('%08d', n)",
        ),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            (format!("generate_series(1, {RUNS}) AS s(n)"), "lpad(n::text, 8, '0')")
        }
    };
    let insert = format!(
        "INSERT INTO {{ops}}.runs (run_id, project_id, env_id, lane, concurrency_key, status, gate, claimed_by, \
             finished_at, end_cause, git_sha, git_ref) \
         SELECT 'run-018f3c5e-0000-7000-8000-0000' || {text}, \
             CASE WHEN n % 10 = 0 THEN 'bank' ELSE 'shop' END, \
             CASE WHEN n % 10 = 0 THEN 'bank/staging' WHEN n % 5000 = 1 THEN 'shop/rare' \
                  WHEN n % 2 = 0 THEN 'shop/staging' ELSE 'shop/production' END, \
             CASE WHEN n % 1000 = 0 THEN 'sync' ELSE 'ops' END, \
             CASE WHEN n % 1000 = 0 THEN 'feed:gems' END, \
             CASE WHEN n % 5 = 1 THEN 'failed' WHEN n % 5000 = 2 THEN 'cancelled' ELSE 'success' END, \
             NULL, 'w', {moment}, 'reported', {text} || 'abcdef', \
             CASE WHEN n % 100 = 0 THEN 'release/' || (n % 7) ELSE 'main' END \
           FROM {series}"
    );
    door.stage.plain.execute(&insert).await.expect("the table is filled");
    if door.stage.kind == Kind::Postgres {
        // How many environments the server believes in is a guess from a sample, and differs each time. Told that there
        // is but one, a walk through all events looks as good to it as the index: the worst that a guess can be.
        let guess = "ALTER TABLE ops.run_events ALTER COLUMN env_id SET (n_distinct = 1)";
        let tables =
            ["runs", "run_events", "run_ends", "run_marks"].map(|table| format!("; ANALYZE ops.{table}"));
        door.stage.plain.script(&format!("{guess}{}", tables.concat())).await.expect("it is analysed");
    }
}

pub(crate) async fn each_filter_is_answered_from_an_index(kind: Kind) {
    let door = Doorway::open(kind).await;
    fill(&door).await;
    let none = || RunFilter { limit: 50, ..RunFilter::default() };
    let text = |text: &str| Some(text.to_owned());
    let primary = if kind == Kind::Sqlite { "sqlite_autoindex_runs_1" } else { "runs_pkey" };
    let ended = if kind == Kind::Sqlite { "PRIMARY KEY" } else { "run_ends_pkey" };
    let marks =
        if kind == Kind::Sqlite { "q USING PRIMARY KEY (kind=? AND value=?" } else { "run_marks_pkey" };
    let cases = [
        ("everything", none(), primary),
        ("project", RunFilter { project: text("bank"), ..none() }, "runs_of_env"),
        ("environment", RunFilter { env: text("production"), ..none() }, "runs_of_env"),
        ("both", RunFilter { project: text("shop"), env: text("staging"), ..none() }, "runs_of_env"),
        ("lane", RunFilter { lane: Some(Lane::Sync), ..none() }, marks),
        ("feed", RunFilter { feed: text("gems"), ..none() }, marks),
        ("rare environment", RunFilter { env: text("rare"), ..none() }, "runs_of_env"),
        ("cancelled", RunFilter { status: Some(RunState::Cancelled), ..none() }, ended),
        ("failed", RunFilter { status: Some(RunState::Failed), ..none() }, ended),
        ("held", RunFilter { status: Some(RunState::Running), ..none() }, "runs_held"),
        ("queued", RunFilter { status: Some(RunState::Queued), ..none() }, "runs_ready"),
        ("time", RunFilter { since: Some(at(0)), until: Some(at(60)), ..none() }, primary),
        ("id", RunFilter { id_prefix: text("run-018f3c5e-0000-7000-8000-00000000"), ..none() }, primary),
        ("sha", RunFilter { sha_prefix: text("00000042"), ..none() }, marks),
        ("ref", RunFilter { ref_prefix: text("release/"), ..none() }, marks),
        ("name of a feed", RunFilter { name_prefix: text("ge"), ..none() }, marks),
    ];
    for (name, filter, index) in cases {
        let plan = door.stage.store.explain_runs(filter).await.expect("the plan is told").join("\n");
        assert!(plan.contains(index), "{name} is not found by {index}:\n{plan}");
        for walk in ["Seq Scan on runs", "using run_events_pkey", "Merge Join", "SCAN r\n", "SCAN runs"] {
            assert!(!format!("{plan}\n").contains(walk), "{name} walks the table:\n{plan}");
        }
    }
}
