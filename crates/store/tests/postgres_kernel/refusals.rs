//! Values that PostgreSQL accepts and Rust cannot read, and forbidden reports.

use crate::Kernel;
use sqlx::Row as _;

/// Returns a document with this nesting depth.
fn nested(levels: usize) -> String {
    format!("{{\"a\": {}1{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
}

#[tokio::test]
async fn functions_refuse_values_that_rust_cannot_read() {
    let kernel = Kernel::open().await;
    let queue = |more: &str| format!("SELECT ops.queue_run('shop', 'staging', NULL, NULL, {more})");
    let run = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    let long = "x".repeat(5_000);
    let labels: Vec<String> = (0..40).map(|n| format!("'label-{n}'")).collect();
    let refused = [
        queue("p_expires_at => 'infinity'"),
        queue("p_available_at => '-infinity'"),
        queue("p_expires_at => '20000-01-01'"),
        queue("p_now => 'infinity'"),
        queue("p_metadata => '{\"a\": 1e400}'"),
        queue("p_metadata => '{\"a\": [{\"b\": -18446744073709551617}]}'"),
        queue(&format!("p_metadata => '{}'", nested(65))),
        queue("p_run_id => 'run-Upper_Case'"),
        queue("p_kind => NULL"),
        queue(&format!("p_kind => '{long}'")),
        queue(&format!("p_labels => '{{{long}}}'")),
        queue(&format!("p_labels => ARRAY[{}]", labels.join(", "))),
        queue(&format!("p_git_ref => '{long}'")).replacen("NULL, NULL", "NULL", 1),
        format!("SELECT ops.append_event('{run}', 'info', 'x', '{{\"a\": 1e400}}')"),
        format!("SELECT ops.append_event('{run}', 'info', 'x', '{{}}', '{long}')"),
        format!("SELECT ops.append_event('{run}', 'info', 'x', p_now => 'infinity')"),
        format!("SELECT ops.cancel_run('{run}', 'me', '{long}')"),
        format!("SELECT ops.finish_run('{run}', 'success', '{{\"a\": 1e400}}')"),
        format!("SELECT ops.finish_run('{run}', 'success', p_now => 'infinity')"),
        format!("SELECT ops.add_artifact('{run}', 'log', 'x', p_metadata => '{{\"a\": 1e400}}')"),
        format!("SELECT ops.claim_next_run('{long}')"),
    ];
    for text in refused {
        let state = kernel.refusal(&text).await;
        assert!(
            ["TM006", "TM007", "TM008", "23514", "22008", "0A000"].contains(&state.as_str()),
            "{state}: {text}"
        );
    }
    // The limits themselves are accepted, and large numbers without loss.
    for text in [
        queue(&format!("p_metadata => '{}'", nested(64))),
        queue(
            "p_metadata => '{\"a\": [18446744073709551615, -9223372036854775808, 1e300, 100000000000000000000]}'",
        ),
        queue("p_expires_at => '9999-01-01'"),
    ] {
        kernel.execute(&text).await;
    }
}

#[tokio::test]
async fn plain_statements_refuse_values_that_rust_cannot_read() {
    let kernel = Kernel::open().await;
    let run = kernel.queue("").await;
    let insert = |columns: &str, values: &str| {
        format!(
            "INSERT INTO ops.runs (run_id, project_id, env_id, {columns}) VALUES \
                 ('run-{}', 'shop', 'shop/staging', {values})",
            columns.len() + values.len()
        )
    };
    let update = |set: &str| format!("UPDATE ops.runs SET {set} WHERE run_id = '{run}'");
    let long = "x".repeat(5_000);
    let event = "INSERT INTO ops.run_events (run_id, level, message";
    let refused = [
        insert("expires_at", "'infinity'"),
        insert("last_seq, expires_at", "1, 'infinity'"),
        insert("created_at", "'-infinity'"),
        insert("metadata", "'{\"a\": 1e400}'"),
        insert("metadata", &format!("'{}'", nested(200))),
        insert("git_sha", &format!("'{long}'")),
        insert("kind", &format!("'{}'", "k".repeat(101))),
        update(&format!("kind = '{}'", "k".repeat(101))),
        "INSERT INTO ops.runs (run_id, project_id, env_id) VALUES ('run-Upper', 'shop', 'shop/staging')"
            .to_owned(),
        "INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, last_seq) \
         SELECT 'run-Upper', project_id, env_id, label_set_id, 1 FROM ops.runs LIMIT 1"
            .to_owned(),
        update("epoch = 2147483647"),
        update("priority = 2000000000"),
        format!("{event}, seq) VALUES ('{run}', 'info', 'x', 2147483647)"),
        update("expires_at = 'infinity'"),
        update("expires_at = 'infinity', last_seq = last_seq + 1"),
        update("metadata = '{\"a\": 1e400}'"),
        update(&format!("cancel_reason = '{long}'")),
        update("status = 'cancelled', end_cause = 'because'"),
        format!("{event}, payload) VALUES ('{run}', 'info', 'x', '[1e400]')"),
        format!("{event}, created_at) VALUES ('{run}', 'info', 'x', 'infinity')"),
        "INSERT INTO ops.flags (flag, scope, since, until_at) \
         VALUES ('paused', 'lane:ops', now(), 'infinity')"
            .to_owned(),
        "UPDATE ops.projects SET metadata = '{\"a\": 1e400}'".to_owned(),
        "UPDATE ops.environments SET config = '{\"a\": 1e400}'".to_owned(),
    ];
    for text in refused {
        let state = kernel.refusal(&text).await;
        assert!(["TM006", "TM007", "23514"].contains(&state.as_str()), "{state}: {text}");
    }
}

#[tokio::test]
async fn existing_unreadable_row_can_still_be_ended() {
    let kernel = Kernel::open().await;
    kernel
        .execute(
            "BEGIN; SET LOCAL session_replication_role = replica; \
             INSERT INTO ops.runs (run_id, project_id, env_id, label_set_id, gate, available_at, attention_at, \
                                   expires_at, metadata, last_seq) \
             SELECT 'run-BAD', 'shop', 'shop/staging', 1, 'time', now(), now(), 'infinity', '{\"a\": 1e400}', 1; \
             COMMIT",
        )
        .await;
    let run = kernel.queue("").await;
    let mut claimed = [kernel.claim("worker", "").await, kernel.claim("worker", "").await];
    claimed.sort();
    assert_eq!(claimed, [Some(run), Some("run-BAD".to_owned())]);
    kernel.execute("SELECT ops.heartbeat('run-BAD')").await;
    kernel.execute("SELECT ops.cancel_run('run-BAD')").await;
    kernel.execute("SELECT ops.sweep(10, 20, clock_timestamp() + interval '1 minute')").await;
    assert_eq!(kernel.of_run("status", "run-BAD").await.as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn plain_event_insert_continues_the_numbering() {
    let kernel = Kernel::open().await;
    let run = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    kernel
        .execute(&format!(
            "INSERT INTO ops.run_events (run_id, level, message, payload) VALUES ('{run}', 'info', 'one', '{{}}'); \
             INSERT INTO ops.run_events (run_id, seq, event_id, level, message) \
             VALUES ('{run}', 9, 'mine', 'info', 'two')"
        ))
        .await;
    let text = format!(
        "SELECT string_agg(seq || ' ' || message, ', ' ORDER BY seq) FROM ops.run_events \
                        WHERE run_id = '{run}' AND kind = 'log'"
    );
    assert_eq!(kernel.value(&text).await.as_deref(), Some("3 one, 9 two"));
    kernel.execute(&format!("SELECT ops.finish_run('{run}', 'success')")).await;
    assert_eq!(kernel.of_run("last_seq", &run).await.as_deref(), Some("11"));
}

/// Functions of operators append events as they did to the table: the view returns the columns that it fills in.
#[tokio::test]
async fn plain_event_insert_returns_its_id() {
    let kernel = Kernel::open().await;
    let run = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    kernel
        .execute(
            "CREATE FUNCTION append_by_hand(p_run_id text, p_message text) RETURNS text LANGUAGE plpgsql AS $$ \
             DECLARE v_event_id text; \
             BEGIN \
                 INSERT INTO ops.run_events (run_id, level, message, payload) \
                 VALUES (p_run_id, 'info', p_message, '{}') RETURNING event_id INTO v_event_id; \
                 RETURN v_event_id; \
             END $$",
        )
        .await;
    let of_run = run.trim_start_matches("run-");
    for (message, seq) in [("one", 3), ("two", 4)] {
        let id = kernel.value(&format!("SELECT append_by_hand('{run}', '{message}')")).await.unwrap();
        assert_eq!(id, format!("evt-{of_run}-{seq}"));
        let stored = format!("SELECT message || ' ' || seq FROM ops.run_events WHERE event_id = '{id}'");
        assert_eq!(kernel.value(&stored).await, Some(format!("{message} {seq}")));
    }
    let rows = kernel
        .rows(&format!(
            "INSERT INTO ops.run_events (run_id, level, message) VALUES ('{run}', 'warn', 'three') \
             RETURNING event_id, seq::text, kind, payload::text"
        ))
        .await;
    let returned: Vec<String> = (0..4).map(|column| rows[0].get(column)).collect();
    assert_eq!(returned, [format!("evt-{of_run}-5"), "5".to_owned(), "log".to_owned(), "{}".to_owned()]);
}

#[tokio::test]
async fn worker_cannot_finish_a_graph_or_a_sync() {
    let kernel = Kernel::open().await;
    for lane in ["graph", "sync"] {
        let run = kernel.queue("").await;
        kernel.claim("worker", "").await.unwrap();
        kernel.execute(&format!("UPDATE ops.runs SET lane = '{lane}' WHERE run_id = '{run}'")).await;
        let other = kernel.queue("").await;
        kernel.claim("worker", "").await.unwrap();
        for status in ["success", "failed"] {
            let one = format!("SELECT ops.finish_run('{run}', '{status}', '{{}}', 'worker')");
            let batch = format!(
                "SELECT ops.finish_runs(ARRAY['{run}', '{other}'], ARRAY['{status}', '{status}'], \
                 ARRAY['{{}}', '{{}}']::jsonb[], 'worker')"
            );
            for text in [one, batch] {
                assert_eq!(kernel.refusal(&text).await, "TM006", "{text}");
            }
        }
        assert_eq!(kernel.of_run("finished_at", &run).await, None);
        kernel
            .execute(&format!("SELECT ops.finish_run('{run}', 'cancelled', '{{\"reason\": \"enough\"}}')"))
            .await;
        assert_eq!(kernel.of_run("finished_at", &run).await, None, "its jobs are requested to stop first");
        kernel.execute(&format!("SELECT ops.finish_run('{other}', 'success')")).await;
    }
}

#[tokio::test]
async fn repeated_report_with_a_wrong_epoch_is_stale() {
    let kernel = Kernel::open().await;
    let run = kernel.queue("").await;
    kernel.claim("worker", "").await.unwrap();
    let finish = |worker: &str, epoch: i32| {
        format!("SELECT ops.finish_run_outcome('{run}', 'success', '{{}}', '{worker}', {epoch})")
    };
    assert_eq!(kernel.value(&finish("worker", 1)).await.as_deref(), Some("applied"));
    assert_eq!(kernel.value(&finish("worker", 1)).await.as_deref(), Some("duplicate"));
    assert_eq!(kernel.value(&finish("worker", 2)).await.as_deref(), Some("stale"));
    assert_eq!(kernel.value(&finish("other", 1)).await.as_deref(), Some("stale"));
}
