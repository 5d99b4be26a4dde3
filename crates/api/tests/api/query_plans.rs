//! Every list filter and every run operation uses an index, according to the query plans.

use crate::fixture::ApiFixture;
use tidemill_core::run::{Lane, RunFilter, RunState};
use tidemill_testkit::interface::{Kind, at};

/// Number of runs for every plan.
const RUNS: u32 = 20_000;

/// Fills the table with ended runs of two projects, many of them failed, and a few of each rare kind.
async fn fill(api: &ApiFixture) {
    let names = ["staging", "production", "rare"].map(str::to_owned).to_vec();
    api.base.store.create_project("shop", names, Some(at(0))).await.expect("the environment is made");
    let moment = if api.base.kind == Kind::Sqlite { "1000000" } else { "now()" };
    let (series, text) = match api.base.kind {
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
             finished_at, end_cause, git_sha, git_ref, kind) \
         SELECT 'run-018f3c5e-0000-7000-8000-0000' || {text}, \
             CASE WHEN n % 10 = 0 THEN 'bank' ELSE 'shop' END, \
             CASE WHEN n % 10 = 0 THEN 'bank/staging' WHEN n % 5000 = 1 THEN 'shop/rare' \
                  WHEN n % 2 = 0 THEN 'shop/staging' ELSE 'shop/production' END, \
             CASE WHEN n % 1000 = 0 THEN 'sync' ELSE 'ops' END, \
             CASE WHEN n % 1000 = 0 THEN 'feed:gems' END, \
             CASE WHEN n % 5 = 1 THEN 'failed' WHEN n % 5000 = 2 THEN 'cancelled' ELSE 'success' END, \
             NULL, 'w', {moment}, 'reported', {text} || 'abcdef', \
             CASE WHEN n % 100 = 0 THEN 'release/' || (n % 7) ELSE 'main' END, \
             CASE WHEN n % 5000 = 3 THEN 'rare' WHEN n % 3 = 0 THEN '' ELSE 'common' END \
           FROM {series}"
    );
    api.base.plain.execute(&insert).await.expect("the table is filled");
    if api.base.kind == Kind::Postgres {
        // The estimated number of environments comes from a sample and varies. With an estimate of 1, the worst case, a
        // scan of all events looks as cheap as the index.
        let guess = "ALTER TABLE ops.run_steps ALTER COLUMN env_id SET (n_distinct = 1)";
        let tables = ["runs", "run_steps", "run_log", "unsuccessful_runs", "run_lookup"]
            .map(|table| format!("; ANALYZE ops.{table}"));
        api.base.plain.script(&format!("{guess}{}", tables.concat())).await.expect("it is analysed");
    }
}

pub(crate) async fn every_filter_uses_an_index(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    fill(&api).await;
    let none = || RunFilter { limit: 50, ..RunFilter::default() };
    let text = |text: &str| Some(text.to_owned());
    let of_kind = |kind: &str| RunFilter { kind: text(kind), ..none() };
    let primary = if kind == Kind::Sqlite { "sqlite_autoindex_runs_1" } else { "runs_pkey" };
    let by_age = "runs_by_age";
    let ended = if kind == Kind::Sqlite { "PRIMARY KEY" } else { "unsuccessful_runs_pkey" };
    let marks =
        if kind == Kind::Sqlite { "q USING PRIMARY KEY (kind=? AND value=?" } else { "run_lookup_pkey" };
    let cases = [
        ("everything", none(), by_age),
        ("project", RunFilter { project: text("bank"), ..none() }, "runs_of_env"),
        ("environment", RunFilter { env: text("production"), ..none() }, "runs_of_env"),
        ("both", RunFilter { project: text("shop"), env: text("staging"), ..none() }, "runs_of_env"),
        ("kind", of_kind("common"), marks),
        ("rare kind", of_kind("rare"), marks),
        ("unknown kind", of_kind("none"), marks),
        ("kind and success", RunFilter { status: Some(RunState::Success), ..of_kind("common") }, marks),
        ("kind and failed", RunFilter { status: Some(RunState::Failed), ..of_kind("common") }, ended),
        ("rare kind and failed", RunFilter { status: Some(RunState::Failed), ..of_kind("rare") }, marks),
        ("kind and held", RunFilter { status: Some(RunState::Running), ..of_kind("common") }, "runs_held"),
        ("kind and project", RunFilter { project: text("bank"), ..of_kind("common") }, marks),
        ("lane", RunFilter { lane: Some(Lane::Sync), ..none() }, marks),
        ("feed", RunFilter { feed: text("gems"), ..none() }, marks),
        ("rare environment", RunFilter { env: text("rare"), ..none() }, "runs_of_env"),
        ("cancelled", RunFilter { status: Some(RunState::Cancelled), ..none() }, ended),
        ("failed", RunFilter { status: Some(RunState::Failed), ..none() }, ended),
        ("held", RunFilter { status: Some(RunState::Running), ..none() }, "runs_held"),
        ("queued", RunFilter { status: Some(RunState::Queued), ..none() }, "runs_ready"),
        ("time", RunFilter { since: Some(at(0)), until: Some(at(60)), ..none() }, by_age),
        ("id", RunFilter { id_prefix: text("run-018f3c5e-0000-7000-8000-0000000100"), ..none() }, primary),
        ("common prefix of ids", RunFilter { id_prefix: text("run-018f3c5e-0000"), ..none() }, by_age),
        ("sha", RunFilter { sha_prefix: text("00000042"), ..none() }, marks),
        ("ref", RunFilter { ref_prefix: text("release/"), ..none() }, marks),
        ("name of a feed", RunFilter { name_prefix: text("ge"), ..none() }, marks),
    ];
    for (name, filter, index) in cases {
        let plan = api.base.store.explain_runs(filter).await.expect("the plan is told").join("\n");
        assert!(plan.contains(index), "{name} is not found by {index}:\n{plan}");
        for walk in ["Seq Scan on runs", "Seq Scan on run_steps", "Merge Join", "SCAN r\n", "SCAN runs"] {
            assert!(!format!("{plan}\n").contains(walk), "{name} walks the table:\n{plan}");
        }
    }
}

/// Every operation on a run, and every way a run ends. Plans are cached for the session, including those of the first
/// call.
const VERBS: &str = "
CREATE FUNCTION pg_temp.live() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_worker uuid := gen_random_uuid();
    v_run    text;
    v_runs   text[];
    v_status text;
BEGIN
    PERFORM {ops}.register_worker(v_worker, 'w', 'h', 1, '{}', '1');
    FOREACH v_status IN ARRAY '{success,failed,cancelled}'::text[] LOOP
        FOR v_round IN 1 .. 2 LOOP
            PERFORM {ops}.queue_run('shop', 'staging', NULL, NULL, '{}', gen_random_uuid()::text, p_max_attempts => 3);
            SELECT c.run_id INTO v_run FROM {ops}.claim_next_run('w', p_worker => v_worker) c;
            PERFORM {ops}.beat_worker(v_worker, ARRAY[v_run]);
            IF v_round = 1 THEN
                PERFORM {ops}.start_run(v_run, 'w', 1);
                PERFORM {ops}.append_event(v_run, 'info', 'a line', p_worker_id => 'w');
                PERFORM {ops}.heartbeat(v_run, 'w', 1);
                PERFORM {ops}.lease_guard(v_run, 1);
            END IF;
            PERFORM {ops}.finish_run(v_run, v_status, '{\"artifacts\": [{\"type\": \"log\", \"url\": \"x\"}]}', 'w', 1);
            PERFORM {ops}.finish_run(v_run, v_status, '{}', 'w', 1);
        END LOOP;
    END LOOP;
    PERFORM {ops}.retry_run(v_run);
    PERFORM {ops}.queue_run('shop', 'staging', NULL, NULL) FROM generate_series(1, 4);
    SELECT array_agg(c.run_id) INTO v_runs FROM {ops}.claim_next_run('w', 4) c;
    PERFORM {ops}.cancel_run(v_runs[1]);
    PERFORM {ops}.finish_runs(v_runs[2:], '{success,failed,success}', '{\"{}\",\"{}\",\"{}\"}', 'w');
END
$$";

/// Operations planned on a small table must not scan it once it is large.
#[tokio::test]
async fn cached_plan_from_a_small_table_still_uses_the_index() {
    let api = ApiFixture::open(Kind::Postgres).await;
    let read = "(SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables \
                  WHERE relid = ANY ('{{ops}.runs,{ops}.run_steps,{ops}.run_log}'::regclass[]))";
    let judge = format!(
        "DO $$
         DECLARE
             v_before bigint;
         BEGIN
             PERFORM pg_temp.live();
             PERFORM {{ops}}.queue_run('bank', 'staging', NULL, NULL) FROM generate_series(1, 3000);
             v_before := {read};
             PERFORM pg_temp.live();
             IF {read} > v_before THEN
                 RAISE EXCEPTION '% rows were read one after the other', {read} - v_before;
             END IF;
         END
         $$"
    );
    api.base
        .plain
        .script(&format!("{VERBS};\n{judge}"))
        .await
        .expect("operations find their run by an index");
}
