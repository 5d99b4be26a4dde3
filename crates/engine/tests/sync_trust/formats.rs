//! Formats of times in requests and records: cursors of incremental syncs, and partitions by time.

use super::fixture::{TrustFixture, records};
use serde_json::{Value, json};
use tidemill_core::feed::RunType;
use tidemill_engine::clock::host_now;
use tidemill_testkit::interface::Kind;

const COLUMNS: &str = "    id: {nullable: false}\n    n: {type: decimal}\n";
const DAY_SECS: i64 = 86_400;

/// Writes a time, in seconds since 1970, in a format.
fn written(secs: i64, format: &str) -> Value {
    let time = chrono::DateTime::from_timestamp(secs, 0).expect("a valid time");
    match format {
        "unix" => json!(secs),
        "unix_ms" => json!(secs * 1_000),
        "date" => json!(time.format("%Y-%m-%d").to_string()),
        _ => json!(time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)),
    }
}

/// A sync of changes sends the watermark in the format of the source, and reads the changed record alone.
pub(crate) async fn cursor_of_each_format_finds_the_changes(kind: Kind) {
    for (format, initial) in [("unix", "1500000000"), ("unix_ms", "1500000000000"), ("date", "2017-07-14")] {
        let mut all = records(60);
        for record in &mut all {
            record["changed"] = written(1_577_836_800, format);
        }
        let fixture = TrustFixture::open(kind, all).await;
        let incremental = format!(
            "incremental: {{cursor_path: changed, start_param: changed_from, format: {format}, \
             initial_value: 2017-07-14}}"
        );
        let incremental =
            if format == "date" { incremental } else { incremental.replace("2017-07-14", initial) };
        fixture.apply_text(&fixture.definition(&incremental, "", COLUMNS)).await;
        assert_eq!(fixture.sync(false).await.run_type, RunType::Full);
        assert_eq!(fixture.rows("true").await, 60, "{format}");
        let sent = |call: &tidemill_testkit::list_api::ListCall| call.query.get("changed_from").cloned();
        let calls = fixture.api.take_calls();
        assert!(calls.iter().all(|call| sent(call).as_deref() == Some(initial)), "{format}: {calls:?}");
        let now = host_now().timestamp();
        fixture.api.change(|all| {
            all[5]["n"] = json!(999);
            all[5]["changed"] = written(now + 2 * DAY_SECS, format);
            // Not in the list of changes, so a sync of changes must not see it.
            all[6]["n"] = json!(999);
        });
        assert_eq!(fixture.sync(false).await.run_type, RunType::Incremental);
        assert_eq!(fixture.rows("n = 999").await, 1, "{format}");
        assert_eq!(fixture.rows("n = 999 AND id = 'r0005'").await, 1, "{format}");
        fixture.close().await;
    }
}

/// A heatmap of times divides the list by boundaries in the format of the source.
pub(crate) async fn heatmap_of_times_covers_every_record(kind: Kind) {
    let start = 1_767_225_600;
    for format in ["rfc3339", "unix"] {
        let mut all = records(300);
        for (day, record) in (0..).zip(&mut all) {
            record["at"] = written(start + day % 50 * DAY_SECS, format);
        }
        let fixture = TrustFixture::open(kind, all).await;
        let partition = format!(
            "partition: {{type: heatmap, field: at, kind: time, from: 2026-01-01, to: 2026-03-01, granularity: 1d, \
             format: {format}, from_param: at_from, to_param: at_to, count: {{total_path: total}}}}"
        );
        fixture.apply_text(&fixture.definition(&partition, "", COLUMNS)).await;
        let sync = fixture.sync(true).await;
        assert_eq!(fixture.rows("true").await, 300, "{format}");
        assert!(sync.expected_workers > 1, "{format}: {sync:?}");
        fixture.close().await;
    }
}
