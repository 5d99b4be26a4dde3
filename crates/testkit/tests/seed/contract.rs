//! The tables, columns, signatures and privileges that the seed documents promise.

use super::Seed;
use sqlx::{AssertSqlSafe, Row as _};

/// The tables and columns that the seed names exist, with the types that it names or implies.
#[tokio::test]
async fn the_seeds_tables_and_columns_exist() {
    let seed = Seed::open().await;
    let columns = seed.stage.plain.columns().await.unwrap();
    for (table, names, kind) in [
        ("runs", "run_id project_id env_id git_sha git_ref status claimed_by idempotency_key", "text"),
        ("runs", "queued_at started_at finished_at created_at updated_at", "timestamp with time zone"),
        ("runs", "metadata", "jsonb"),
        ("run_events", "event_id run_id level message", "text"),
        ("run_events", "payload", "jsonb"),
        ("run_events", "created_at", "timestamp with time zone"),
    ] {
        for name in names.split(' ') {
            let expected = (name.to_owned(), kind.to_owned());
            assert!(
                columns[table].contains(&expected),
                "ops.{table}.{name} is not {kind}: {:?}",
                columns[table]
            );
        }
    }
    // The seed's unique key is wider than ours on purpose: another project's key is no obstacle.
    let text = "SELECT count(*) AS count FROM pg_indexes WHERE schemaname = 'ops' AND tablename = 'runs' \
                AND indexdef LIKE 'CREATE UNIQUE INDEX % (project_id, idempotency_key)%'";
    assert_eq!(seed.row(text).await.get::<i64, _>("count"), 1);
}

/// Exactly one overload of each function; the seed's parameters, in its order and with its defaults, come first.
#[tokio::test]
async fn the_seeds_signatures_are_the_beginning_of_ours() {
    let seed = Seed::open().await;
    let text = "SELECT proname::text AS name, count(*) AS count FROM pg_proc \
                WHERE pronamespace = 'ops'::regnamespace GROUP BY proname HAVING count(*) > 1";
    assert!(seed.rows(text).await.is_empty());
    for (name, parameters, returns) in [
        (
            "queue_run",
            "p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb DEFAULT '{}'::jsonb, \
             p_idempotency_key text DEFAULT NULL::text",
            "TABLE(run_id text, status text, queued_at timestamp with time zone",
        ),
        (
            "claim_next_run",
            "p_worker_id text",
            "TABLE(run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb",
        ),
        (
            "append_event",
            "p_run_id text, p_level text, p_message text, p_payload jsonb DEFAULT '{}'::jsonb",
            "text",
        ),
        ("finish_run", "p_run_id text, p_status text, p_metadata jsonb DEFAULT '{}'::jsonb", "boolean"),
    ] {
        let row = seed
            .row(&format!(
                "SELECT pg_get_function_arguments(oid) AS parameters, pg_get_function_result(oid) AS result, \
                 prosecdef, proconfig::text AS config FROM pg_proc \
                 WHERE pronamespace = 'ops'::regnamespace AND proname = '{name}'"
            ))
            .await;
        let ours: String = row.get("parameters");
        assert!(ours.starts_with(parameters), "{name}({ours})");
        let rest = ours[parameters.len()..].trim_start_matches(", ");
        for parameter in rest.split(", p_").filter(|parameter| !parameter.is_empty()) {
            assert!(parameter.contains(" DEFAULT "), "{name}: {parameter} is new and has no default");
        }
        assert!(
            row.get::<String, _>("result").starts_with(returns),
            "{name} returns {}",
            row.get::<String, _>("result")
        );
        assert!(row.get::<bool, _>("prosecdef"), "{name} runs as its owner");
        assert!(row.get::<Option<String>, _>("config").is_some_and(|config| config.contains("search_path")));
    }
}

/// Functions with SECURITY DEFINER set their own search path. Five functions qualify all names instead, because a
/// setting would be applied and reset in each step of a run.
#[tokio::test]
async fn security_definer_functions_set_their_search_path() {
    let seed = Seed::open().await;
    let text = "SELECT proname::text AS name FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace \
                WHERE nspname NOT IN ('pg_catalog', 'information_schema') \
                AND prosecdef AND coalesce(proconfig::text, '') NOT LIKE '%search_path%' \
                ORDER BY 1";
    let open: Vec<String> = seed.rows(text).await.iter().map(|row| row.get("name")).collect();
    assert_eq!(open, ["enter_run", "guard_event", "guard_insert", "guard_step", "wake"]);
}

/// Only the owner and the worker role may call our functions.
#[tokio::test]
async fn public_role_can_call_no_function() {
    let seed = Seed::open().await;
    let text = "SELECT proname::text AS name FROM pg_proc WHERE pronamespace = 'ops'::regnamespace \
                AND has_function_privilege('public', oid, 'EXECUTE') ORDER BY 1";
    let open: Vec<String> = seed.rows(text).await.iter().map(|row| row.get("name")).collect();
    assert_eq!(open, [""; 0]);
}

/// Invalid levels and statuses, which only SQL callers can send.
#[tokio::test]
async fn a_bad_level_or_status_is_refused_and_nothing_is_written() {
    let seed = Seed::open().await;
    let run = seed.claimed().await;
    let before = seed.stage.tables().await;
    for (call, sentence) in [
        (
            "ops.append_event('{run}', 'fatal', 'x')",
            "`fatal` is not a level; it is one of debug, info, warn, error",
        ),
        ("ops.append_event('{run}', 'info', NULL)", "event message is required"),
        (
            "ops.finish_run('{run}', 'done')",
            "`done` is not a final status; it is one of success, failed, cancelled",
        ),
        (
            "ops.finish_run('{run}', 'queued')",
            "`queued` is not a final status; it is one of success, failed, cancelled",
        ),
        ("ops.finish_run('{run}', 'success', '[]')", "metadata must be a JSON object"),
    ] {
        let text = AssertSqlSafe(format!("SELECT {}", call.replace("{run}", &run)));
        let error = sqlx::query(text).persistent(false).execute(&seed.pool).await.unwrap_err();
        let error = error.as_database_error().unwrap();
        assert_eq!((error.code().as_deref(), error.message()), (Some("TM006"), sentence));
    }
    seed.stage.unchanged(&before).await;
}
