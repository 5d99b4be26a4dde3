//! A full disk: the task that filled it fails with a sentence, its files go, and the next task succeeds.

use crate::stage::{Ground, kill, order, until, well};
use serde_json::json;
use std::collections::BTreeMap;
use tidemill_core::task::TaskResult;

fn failed_for_the_disk(result: &TaskResult) -> bool {
    let words = "the disk of the agent is full";
    matches!(result, TaskResult::Failed { fatal: false, message, .. } if message.contains(words))
}

/// Shows that a job which fills the disk of its agent costs itself alone.
#[tokio::test]
async fn full_disk_fails_the_task_and_the_next_succeeds() {
    let ground = Ground::new().await;
    let agent = ground.process_on_small_disk();
    for round in 0..3 {
        let fill = order(&ground, &format!("fill{round}"), "dd if=/dev/zero of=big bs=1M count=20");
        ground.server.order(fill);
        let result = ground.result(&format!("fill{round}-001")).await;
        assert!(failed_for_the_disk(&result), "{result:?}");
        ground.server.order(order(&ground, &format!("next{round}"), "echo x > small; cat small"));
        assert_eq!(ground.result(&format!("next{round}-001")).await, well());
        assert_eq!(ground.server.log(&format!("next{round}-001")), ["stdout: x"]);
    }
    kill(agent).await;
}

/// Shows that a command which did well beside one that filled the disk has done well.
#[tokio::test]
async fn full_disk_does_not_fail_the_command_beside_it() {
    let ground = Ground::new().await;
    let agent = ground.process_on_small_disk();
    let wait = "touch %waits; while ! test -e %full; do sleep 0.02; done";
    ground.server.order(order(&ground, "beside", wait));
    until("it runs", || ground.path("waits").exists()).await;
    let line = "dd if=/dev/zero of=big bs=1M count=20; touch %full; while ! test -e %go; do sleep 0.02; done; exit 1";
    ground.server.order(order(&ground, "fill", line));
    assert_eq!(ground.result("beside-001").await, well());
    std::fs::write(ground.path("go"), "").unwrap();
    let result = ground.result("fill-001").await;
    assert!(failed_for_the_disk(&result), "{result:?}");
    kill(agent).await;
}

/// Shows that outputs which no run needs go when the disk is full, and that a task for which none can go is told.
#[tokio::test]
async fn outputs_that_fill_the_disk_go_when_nobody_needs_them() {
    let ground = Ground::new().await;
    let agent = ground.process_on_small_disk();
    ground.server.known().unused = Some(BTreeMap::new());
    let mut job = order(&ground, "job", "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null || true");
    job["work"]["outputs"] = json!({"big": "big"});
    ground.server.order(job);
    assert_eq!(ground.result("job-001").await, well());
    // A run needs them: the disk stays full, and the next task is told so instead of waiting for ever.
    ground.server.order(order(&ground, "early", "echo x > small"));
    let result = ground.result("early-001").await;
    assert!(failed_for_the_disk(&result), "{result:?}");
    ground.server.known().unused = Some([("job".to_owned(), Some(0))].into());
    ground.server.order(order(&ground, "later", "echo x > small"));
    assert_eq!(ground.result("later-001").await, well());
    kill(agent).await;
}
