//! The time of a call: only members of `tidemill_clock` may choose it.

use crate::{Access, Session};
use sqlx::Row as _;

/// The SQLSTATE of a missing privilege.
const DENIED: &str = "42501";

/// Parameters of worker functions that are times and do not stand for the time of the call.
const CHOSEN_TIMES: [(&str, &str); 2] = [("queue_run", "p_available_at"), ("queue_run", "p_expires_at")];

/// A function with a parameter `p_now`, and a call of it with a time in 2099 and NULL for every other parameter.
struct TimedFunction {
    name: String,
    call: String,
    /// Whether callers may omit the time. Helpers require it, and only functions call them.
    has_default: bool,
    worker_may_call: bool,
}

async fn timed_functions(session: &mut Session, worker: &str) -> Vec<TimedFunction> {
    let rows = session
        .rows(&format!(
            "SELECT p.proname::text AS name, \
                    format('SELECT ops.%I(%s)', p.proname, (SELECT string_agg( \
                        CASE a.name WHEN 'p_now' THEN '''2099-01-01''::timestamptz' \
                                    ELSE 'NULL::' || format_type(a.type, NULL) END, ', ' ORDER BY a.place) \
                      FROM unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) \
                           WITH ORDINALITY a (type, name, place))) AS call, \
                    array_position(p.proargnames, 'p_now') > p.pronargs - p.pronargdefaults AS has_default, \
                    has_function_privilege('{worker}', p.oid, 'EXECUTE') AS worker_may_call \
               FROM pg_proc p \
              WHERE p.pronamespace = 'ops'::regnamespace AND 'p_now' = ANY (p.proargnames[1:p.pronargs]) \
              ORDER BY 1"
        ))
        .await;
    rows.iter()
        .map(|row| TimedFunction {
            name: row.get("name"),
            call: row.get("call"),
            has_default: row.get("has_default"),
            worker_may_call: row.get("worker_may_call"),
        })
        .collect()
}

#[tokio::test]
async fn every_function_with_p_now_refuses_it_from_workers() {
    let mut access = Access::open().await;
    let mut superuser = access.superuser().await;
    let mut worker = access.worker().await;
    let owner_role = access.names.owner.clone();
    let mut owner = access.login("owner_login", &[&owner_role]).await;
    let functions = timed_functions(&mut superuser, &worker.login).await;
    for function in &functions {
        let (state, message) = worker.refusal(&function.call).await;
        assert_eq!(state, DENIED, "{}: {message}", function.call);
        assert_eq!(
            message.contains("tidemill_clock"),
            function.worker_may_call,
            "{}: a granted function names the role, a helper cannot be called: {message}",
            function.call
        );
        // The owner may call everything. It gets no other time than anyone else.
        if function.has_default {
            let (state, message) = owner.refusal(&function.call).await;
            assert_eq!((state.as_str(), message.contains("tidemill_clock")), (DENIED, true), "{message}");
        }
    }
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    for expected in ["claim_next_run", "finish_run", "append_event", "retire_worker", "sweep", "store_page"] {
        assert!(names.contains(&expected), "{expected} is not in {names:?}");
    }
}

/// A time parameter of a new function must be `p_now`, or be listed here with a reason in its documentation.
#[tokio::test]
async fn workers_choose_only_the_listed_times() {
    let mut access = Access::open().await;
    let worker = access.worker().await;
    let mut superuser = access.superuser().await;
    let found = superuser
        .texts(&format!(
            "SELECT p.proname || ' ' || a.name FROM pg_proc p, \
                    unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) a (type, name) \
              WHERE p.pronamespace = 'ops'::regnamespace \
                AND has_function_privilege('{}', p.oid, 'EXECUTE') AND a.name <> 'p_now' \
                AND a.type::regtype::text ~ '^(timestamp|date|interval|time)' ORDER BY 1",
            worker.login
        ))
        .await;
    let listed: Vec<String> = CHOSEN_TIMES.iter().map(|(name, time)| format!("{name} {time}")).collect();
    assert_eq!(found, listed);
}

#[tokio::test]
async fn worker_role_cannot_claim_early_or_backdate() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let mut superuser = access.superuser().await;
    let queue = "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL";
    let later =
        worker.text(&format!("{queue}, p_available_at := clock_timestamp() + interval '30 days')")).await;
    let run = worker.text(&format!("{queue})")).await;
    let content = format!(
        "SELECT (SELECT string_agg(r::text, '; ' ORDER BY r.run_id) FROM ops.runs r) \
         || (SELECT string_agg(e::text, '; ' ORDER BY e.run_id, e.seq) FROM ops.run_events e) \
         || (SELECT count(*) FROM ops.runs WHERE run_id IN ('{later}', '{run}'))"
    );
    let before = superuser.text(&content).await;
    let attacks = [
        "SELECT ops.claim_next_run('builder', p_now := clock_timestamp() + interval '31 days')".to_owned(),
        "SELECT ops.claim_next_run('builder', p_now := '2099-01-01')".to_owned(),
        format!("SELECT ops.append_event('{run}', 'info', 'built', p_now := '1999-01-01')"),
        format!("SELECT ops.heartbeat('{run}', p_now := '2099-01-01')"),
        format!("SELECT ops.finish_run('{run}', 'cancelled', p_now := '1999-01-01')"),
        format!("SELECT ops.cancel_run('{run}', p_now := '1999-01-01')"),
        format!("{queue}, p_now := '1999-01-01')"),
        "SELECT ops.sweep(p_now := '2099-01-01')".to_owned(),
    ];
    for attack in &attacks {
        let (state, message) = worker.refusal(attack).await;
        assert_eq!(state, DENIED, "{attack}: {message}");
    }
    assert_eq!(superuser.text(&content).await, before, "a refused call changed a row");
    // Without a time, the same calls work, and the run of next month stays in the queue.
    let claimed = worker.texts("SELECT run_id FROM ops.claim_next_run('builder', p_limit := 10)").await;
    assert_eq!(claimed, [run.as_str()]);
    let (state, _) = worker.refusal("SELECT ops.claim_next_run('builder', p_lease_secs := 86401)").await;
    assert_eq!(state, "TM006", "the longest lease is a day");
}

/// Functions call each other. No inner call may pass a time, which it would refuse.
#[tokio::test]
async fn worker_role_reports_every_end_without_a_time() {
    let mut access = Access::open().await;
    let mut worker = access.worker().await;
    let mut superuser = access.superuser().await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        let queue = "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL, p_max_attempts := 2)";
        runs.push(worker.text(queue).await);
    }
    worker.texts("SELECT run_id FROM ops.claim_next_run('builder', p_limit := 5)").await;
    let artifacts = r#"{"artifacts": [{"type": "log", "url": "https://x"}]}"#;
    let finish = format!("SELECT ops.finish_run('{}', 'success', '{artifacts}', 'builder', 1)", runs[0]);
    assert_eq!(worker.text(&finish).await, "true");
    let several = |first: &str, second: &str| {
        format!(
            "SELECT outcome FROM ops.finish_runs(ARRAY['{first}', '{second}'], '{{failed,failed}}', \
             ARRAY['{{}}', '{{}}']::jsonb[], 'builder', '{{1,1}}')"
        )
    };
    assert_eq!(worker.texts(&several(&runs[1], &runs[2])).await, ["applied", "applied"]);
    assert_eq!(worker.texts(&several(&runs[2], &runs[3])).await, ["duplicate", "applied"]);
    // Only the controller ends a graph: this end is a request to cancel.
    superuser.rows(&format!("UPDATE ops.runs SET lane = 'graph' WHERE run_id = '{}'", runs[4])).await;
    let cancel = format!("SELECT ops.finish_run('{}', 'cancelled', '{{}}', 'builder', 1)", runs[4]);
    assert_eq!(worker.text(&cancel).await, "true");
    let found = superuser.text("SELECT count(*) FROM ops.artifacts").await;
    let successors = superuser.text("SELECT count(*) FROM ops.runs WHERE retry_of IS NOT NULL").await;
    assert_eq!((found.as_str(), successors.as_str()), ("1", "3"));
}

#[tokio::test]
async fn clock_members_and_superusers_choose_the_time() {
    let mut access = Access::open().await;
    let (worker_role, clock) = (access.names.worker.clone(), access.names.clock.clone());
    assert_eq!(clock, "tidemill_clock");
    let mut tester = access.login("tester", &[&worker_role, &clock]).await;
    let mut superuser = access.superuser().await;
    let queue = "SELECT queued_at = '2026-02-14 10:30:00+00' FROM ops.queue_run('shop', 'staging', NULL, NULL, \
                 p_now := '2026-02-14 10:30:00+00')";
    assert_eq!(tester.text(queue).await, "true");
    assert_eq!(superuser.text(queue).await, "true");
    // The role grants nothing else, and it cannot log in.
    let mut clock_only = access.login("clock_only", &[&clock]).await;
    assert_eq!(clock_only.refusal(queue).await.0, DENIED);
    let login = superuser.text("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'tidemill_clock'").await;
    assert_eq!(login, "false");
}

/// Events name the user who logged in, and the time belongs to that user: a role that it takes on changes neither.
#[tokio::test]
async fn set_role_changes_neither_actor_nor_clock() {
    let mut access = Access::open().await;
    let worker_role = access.names.worker.clone();
    let mut worker = access.worker().await;
    let mut superuser = access.superuser().await;
    worker.rows(&format!("SET ROLE {worker_role}")).await;
    let queue = "SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL";
    let run = worker.text(&format!("{queue})")).await;
    let actor = format!("SELECT DISTINCT actor FROM ops.run_events WHERE run_id = '{run}'");
    assert_eq!(superuser.texts(&actor).await, [worker.login.as_str()]);
    let (state, message) = worker.refusal(&format!("{queue}, p_now := '2099-01-01')")).await;
    assert!(state == DENIED && message.contains(&worker.login), "{message}");
    worker.rows("RESET ROLE").await;
    for text in ["SET ROLE tidemill_clock", "SET SESSION AUTHORIZATION tidemill_clock"] {
        assert_eq!(worker.refusal(text).await.0, DENIED, "{text}");
    }
    // A superuser who becomes the worker acts as the worker.
    superuser.rows(&format!("SET SESSION AUTHORIZATION {}", worker.login)).await;
    let (state, _) = superuser.refusal(&format!("{queue}, p_now := '2099-01-01')")).await;
    assert_eq!(state, DENIED);
}
