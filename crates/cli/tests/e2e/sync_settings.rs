//! Configured settings of queues and partitions in a real sync.

use std::process::Command;

use rustix::process::Signal;
use tidemill_core::message::{Message, WorkItem};
use tidemill_core::queue::{NewMessage, WORK_ITEMS};
use tidemill_store::Queue as _;

use crate::feed::supplier;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::metrics::{role, wait_for_count};
use crate::process::{Process, run};

on_both! {
    configured_sync_settings_take_effect,
    skipped_page_is_logged_and_counted,
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

fn feed(fixture: &Fixture, stones: &str) -> Process {
    let (supplier, endpoint) = supplier(fixture, &["--stones", stones]);
    let account = ["--username", "ann", "--password-env", "PATH", "--rate", "0"];
    fixture.ok(&[&["feed", "add", "stones", "--endpoint", &endpoint], &account[..]].concat());
    supplier
}

/// Runs a sync with one process per role.
fn sync(fixture: &Fixture, adapt: impl Fn(&mut Command)) {
    fixture.ok(&["feed", "sync", "stones", "--full"]);
    for role in ["scheduler", "worker", "consolidator"] {
        let mut command = fixture.command(&[role, "--once"]);
        adapt(&mut command);
        let ran = run(&mut command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

fn partitions(fixture: &Fixture) -> usize {
    let text = "SELECT partition_id FROM partition_progress WHERE run_id = \
                (SELECT run_id FROM run_metadata ORDER BY started_at DESC LIMIT 1)";
    fixture.sql(text).unwrap().len()
}

fn queues(fixture: &Fixture) -> Vec<String> {
    let text = "SELECT queue || ' ' || lock_secs || ' ' || deliveries_max || ' ' || coalesce(window_secs, 0) \
                FROM ops.queues ORDER BY queue";
    fixture.sql(text).unwrap()
}

fn configured_sync_settings_take_effect(fixture: &Fixture) {
    let _supplier = feed(fixture, "1000");
    let defaults = ["consolidate 300 3 0", "work-done 60 3 0", "work-items 120 5 600"];
    sync(fixture, |_| {});
    assert_eq!((partitions(fixture), queues(fixture)), (1, defaults.map(str::to_owned).to_vec()));
    let file = fixture.write("numbers.toml", FILE);
    sync(fixture, |command| {
        command.arg("--config").arg(&file);
    });
    let configured = ["consolidate 300 2 0", "work-done 60 3 0", "work-items 90 7 300"];
    assert_eq!((partitions(fixture), queues(fixture)), (4, configured.map(str::to_owned).to_vec()));
    // The environment overrides the file, and an option overrides the environment.
    sync(fixture, |command| {
        command.arg("--config").arg(&file).env("TIDEMILL_SYNC_PARTITIONS_FULL", "3");
        command.env("TIDEMILL_QUEUE_WORK_ITEMS_LOCK", "2m");
    });
    let configured = ["consolidate 300 2 0", "work-done 60 3 0", "work-items 120 7 300"];
    assert_eq!((partitions(fixture), queues(fixture)), (3, configured.map(str::to_owned).to_vec()));
    sync(fixture, |command| {
        command.arg("--config").arg(&file);
        if command.get_args().any(|word| word == "scheduler") {
            command.args(["--partitions-full", "2"]);
        }
    });
    assert_eq!(partitions(fixture), 2);
    let bad = fixture.write("bad.toml", "[sync]\npartition-target = 0\n[queue]\nwork-items-lock = \"1s\"\n");
    let checked = run(fixture.command(&["config", "check"]).arg("--config").arg(&bad));
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for word in ["sync.partition-target", "queue.work-items-lock"] {
        assert!(checked.stderr.contains(word), "{checked:?}");
    }
}

/// A second message for the same page has no effect, but is logged and counted.
fn skipped_page_is_logged_and_counted(fixture: &Fixture) {
    let _supplier = feed(fixture, "300");
    sync(fixture, |_| {});
    let (mut worker, address) = role(fixture, &["worker"], &[]);
    let read = |column: &str| {
        let text = format!(
            "SELECT CAST({column} AS text) FROM partition_progress p JOIN run_metadata r USING (run_id)"
        );
        fixture.sql(&text).unwrap().remove(0)
    };
    // SQLite stores ids as text.
    let (run_id, partition_id) = (read("p.run_id").parse().unwrap(), read("p.partition_id"));
    let item = WorkItem {
        run_id,
        trace_id: "00000000000000000000000000000001".to_owned(),
        partition_id: partition_id.clone(),
        min_price: 0,
        max_price: 100,
        range: None,
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
    fixture.block(fixture.store().send(vec![message], None)).unwrap();
    let line = "tidemill_pages_skipped_total{feed=\"stones\",reason=\"completed\"}";
    wait_for_count(address, line, 1.0);
    wait_until("the skip is logged", || {
        worker.stderr().contains("skipped the page at offset 0").then_some(())
    });
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
}
