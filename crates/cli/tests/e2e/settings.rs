//! Numbers of queues and of the heatmap as they are configured, in a real sync.

use std::process::Command;

use rustix::process::Signal;
use tidemill_core::message::{Message, WorkItem};
use tidemill_core::queue::{NewMessage, WORK_ITEMS};
use tidemill_store::Queue as _;

use crate::feed::supplier;
use crate::process::{Process, run};
use crate::stage::{PATIENCE, Stage, on_both, until};
use crate::watched::{role, until_counted};

on_both! {
    configured_numbers_take_effect_in_a_sync,
    a_page_that_is_skipped_is_logged_and_counted,
}

const FILE: &str = r#"
[sync]
partition-target = 200
partition-min = 50
partitions-full = 4
partitions-incremental = 2

[queue]
work-items-lock = "90s"
work-items-deliveries = 7
work-items-window = "5m"
consolidate-deliveries = 2
"#;

fn feed(stage: &Stage, stones: &str) -> Process {
    let (supplier, endpoint) = supplier(stage, &["--stones", stones]);
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    stage.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    supplier
}

/// Does a sync with one process for each role.
fn sync(stage: &Stage, adapt: impl Fn(&mut Command)) {
    stage.ok(&["feed", "sync", "stones", "--full"]);
    for role in ["scheduler", "worker", "consolidator"] {
        let mut command = stage.command(&[role, "--once"]);
        adapt(&mut command);
        let ran = run(&mut command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

fn partitions(stage: &Stage) -> usize {
    let text = "SELECT partition_id FROM partition_progress WHERE run_id = \
                (SELECT run_id FROM run_metadata ORDER BY started_at DESC LIMIT 1)";
    stage.sql(text).unwrap().len()
}

fn queues(stage: &Stage) -> Vec<String> {
    let text = "SELECT queue || ' ' || lock_secs || ' ' || deliveries_max || ' ' || coalesce(window_secs, 0) \
                FROM ops.queues ORDER BY queue";
    stage.sql(text).unwrap()
}

fn configured_numbers_take_effect_in_a_sync(stage: &Stage) {
    let _supplier = feed(stage, "1000");
    let defaults = ["consolidate 300 3 0", "work-done 60 3 0", "work-items 120 5 600"];
    sync(stage, |_| {});
    assert_eq!((partitions(stage), queues(stage)), (1, defaults.map(str::to_owned).to_vec()));
    let file = stage.write("numbers.toml", FILE);
    sync(stage, |command| {
        command.arg("--config").arg(&file);
    });
    let configured = ["consolidate 300 2 0", "work-done 60 3 0", "work-items 90 7 300"];
    assert_eq!((partitions(stage), queues(stage)), (4, configured.map(str::to_owned).to_vec()));
    // The environment comes before the file, and a flag before the environment.
    sync(stage, |command| {
        command.arg("--config").arg(&file).env("TIDEMILL_SYNC_PARTITIONS_FULL", "3");
        command.env("TIDEMILL_QUEUE_WORK_ITEMS_LOCK", "2m");
    });
    let configured = ["consolidate 300 2 0", "work-done 60 3 0", "work-items 120 7 300"];
    assert_eq!((partitions(stage), queues(stage)), (3, configured.map(str::to_owned).to_vec()));
    sync(stage, |command| {
        command.arg("--config").arg(&file);
        if command.get_args().any(|word| word == "scheduler") {
            command.args(["--partitions-full", "2"]);
        }
    });
    assert_eq!(partitions(stage), 2);
    let bad = stage.write("bad.toml", "[sync]\npartition-target = 0\n[queue]\nwork-items-lock = \"1s\"\n");
    let checked = run(stage.command(&["config", "check"]).arg("--config").arg(&bad));
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for word in ["sync.partition-target", "queue.work-items-lock"] {
        assert!(checked.stderr.contains(word), "{checked:?}");
    }
}

/// The same page twice: the second message changes nothing, and is seen.
fn a_page_that_is_skipped_is_logged_and_counted(stage: &Stage) {
    let _supplier = feed(stage, "300");
    sync(stage, |_| {});
    let (mut worker, address) = role(stage, &["worker"], &[]);
    let read = |column: &str| {
        let text = format!(
            "SELECT CAST({column} AS text) FROM partition_progress p JOIN run_metadata r USING (run_id)"
        );
        stage.sql(&text).unwrap().remove(0)
    };
    // SQLite keeps ids as they are written.
    let (run_id, partition_id) = (read("p.run_id").parse().unwrap(), read("p.partition_id"));
    let item = WorkItem {
        run_id,
        trace_id: "00000000000000000000000000000001".to_owned(),
        partition_id: partition_id.clone(),
        min_price: 0,
        max_price: 100,
        total_records: 300,
        offset_start: 0,
        offset_end: 300,
        offset: 0,
        limit: 30,
        updated_from: None,
        updated_to: tidemill_engine::clock::host_now(),
        feed: "stones".to_owned(),
    };
    let body = serde_json::to_value(Message::WorkItem(item)).unwrap();
    let message = NewMessage { generation: 9, ..NewMessage::new(WORK_ITEMS, "again", "stones", body) };
    stage.block(stage.store().send(vec![message], None)).unwrap();
    let line = "tidemill_pages_skipped_total{feed=\"stones\",reason=\"completed\"}";
    until_counted(address, line, 1.0);
    until("the skip is logged", || worker.said().contains("skipped the page at offset 0").then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
}
