//! A full disk: the task that filled it fails with a message, its files are removed, and the next task succeeds.

use crate::fixture::{Fixture, kill, order, success, until};
use serde_json::json;
use std::collections::BTreeMap;
use tidemill_core::task::TaskResult;

fn is_disk_failure(result: &TaskResult) -> bool {
    let text = "the disk of the agent is full";
    matches!(result, TaskResult::Failed { fatal: false, message, .. } if message.contains(text))
}

#[tokio::test]
async fn full_disk_fails_the_task_and_the_next_succeeds() {
    let fixture = Fixture::new().await;
    let agent = fixture.process_on_small_disk();
    for round in 0..3 {
        let fill = order(&fixture, &format!("fill{round}"), "dd if=/dev/zero of=big bs=1M count=20");
        fixture.server.order(fill);
        let result = fixture.result(&format!("fill{round}-001")).await;
        assert!(is_disk_failure(&result), "{result:?}");
        fixture.server.order(order(&fixture, &format!("next{round}"), "echo x > small; cat small"));
        assert_eq!(fixture.result(&format!("next{round}-001")).await, success());
        assert_eq!(fixture.server.log(&format!("next{round}-001")), ["stdout: x"]);
    }
    kill(agent).await;
}

#[tokio::test]
async fn full_disk_does_not_fail_a_successful_command() {
    let fixture = Fixture::new().await;
    let agent = fixture.process_on_small_disk();
    let wait = "touch %waits; while ! test -e %full; do sleep 0.02; done";
    fixture.server.order(order(&fixture, "beside", wait));
    until("it runs", || fixture.path("waits").exists()).await;
    let line = "dd if=/dev/zero of=big bs=1M count=20; touch %full; while ! test -e %go; do sleep 0.02; done; exit 1";
    fixture.server.order(order(&fixture, "fill", line));
    assert_eq!(fixture.result("beside-001").await, success());
    std::fs::write(fixture.path("go"), "").unwrap();
    let result = fixture.result("fill-001").await;
    assert!(is_disk_failure(&result), "{result:?}");
    kill(agent).await;
}

/// If no outputs can be removed, the next task fails with a message.
#[tokio::test]
async fn unused_outputs_are_removed_on_a_full_disk() {
    let fixture = Fixture::new().await;
    let agent = fixture.process_on_small_disk();
    fixture.server.state().unused = Some(BTreeMap::new());
    let mut job = order(&fixture, "job", "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null || true");
    job["work"]["outputs"] = json!({"big": "big"});
    fixture.server.order(job);
    assert_eq!(fixture.result("job-001").await, success());
    // A run needs them: the disk stays full, and the next task fails instead of waiting forever.
    fixture.server.order(order(&fixture, "early", "echo x > small"));
    let result = fixture.result("early-001").await;
    assert!(is_disk_failure(&result), "{result:?}");
    fixture.server.state().unused = Some([("job".to_owned(), Some(0))].into());
    fixture.server.order(order(&fixture, "later", "echo x > small"));
    assert_eq!(fixture.result("later-001").await, success());
    kill(agent).await;
}
