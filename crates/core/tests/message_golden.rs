//! Messages compared with golden files: every field, its name and its order, in both directions.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidemill_core::diamond::PRICE_CEILING;
use tidemill_core::feed::FieldRange;
use tidemill_core::message::{Consolidate, Message, WorkDone, WorkItem, WorkStatus};
use tidemill_core::{Json, Timestamp};
use uuid::Uuid;

fn run_id() -> Uuid {
    "01234567-89ab-7def-8123-456789abcdef".parse().unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn work_item() -> WorkItem {
    WorkItem {
        run_id: run_id(),
        trace_id: "xyz789".to_owned(),
        partition_id: "partition-0".to_owned(),
        min_price: 0,
        max_price: 99_999,
        range: None,
        total_records: 5_000,
        offset_start: 0,
        offset_end: 5_000,
        offset: 30,
        limit: 30,
        updated_from: Some(time("2024-01-15T02:00:00Z")),
        updated_to: time("2024-01-16T02:00:00Z"),
        feed: "nivoda-natural".to_owned(),
    }
}

fn work_done() -> WorkDone {
    WorkDone {
        run_id: run_id(),
        trace_id: "xyz789".to_owned(),
        worker_id: "worker-uuid".to_owned(),
        partition_id: "partition-0".to_owned(),
        records_processed: 5_000,
        status: WorkStatus::Success,
        error: None,
        feed: "nivoda-natural".to_owned(),
    }
}

fn consolidate() -> Consolidate {
    Consolidate {
        run_id: run_id(),
        trace_id: "xyz789".to_owned(),
        force: None,
        updated_to: Some(time("2024-01-16T02:00:00Z")),
        feed: "nivoda-natural".to_owned(),
    }
}

fn cases() -> Vec<(&'static str, Message)> {
    let mut full = work_item();
    "partition-29".clone_into(&mut full.partition_id);
    full.set_prices(FieldRange { from: 100_000, to: PRICE_CEILING }, 100);
    full.total_records = 16_667;
    full.offset_end = 16_667;
    full.offset = 0;
    full.updated_from = None;
    let failed = WorkDone {
        partition_id: "partition-3".to_owned(),
        records_processed: 120,
        status: WorkStatus::Failed,
        error: Some(
            "the feed gave the same page again at offset 120, as if it ignored the offset".to_owned(),
        ),
        ..work_done()
    };
    vec![
        (include_str!("golden/work_item.json"), Message::WorkItem(work_item())),
        (include_str!("golden/work_item_full.json"), Message::WorkItem(full)),
        (include_str!("golden/work_done.json"), Message::WorkDone(work_done())),
        (include_str!("golden/work_done_failed.json"), Message::WorkDone(failed)),
        (include_str!("golden/consolidate.json"), Message::Consolidate(consolidate())),
        (
            include_str!("golden/consolidate_forced.json"),
            Message::Consolidate(Consolidate { force: Some(true), ..consolidate() }),
        ),
    ]
}

#[test]
fn messages_serialize_to_the_golden_files() {
    for (golden, message) in cases() {
        assert_eq!(serde_json::to_string_pretty(&message).unwrap(), golden.trim_end());
    }
}

#[test]
fn messages_deserialize_from_the_golden_files() {
    for (golden, message) in cases() {
        assert_eq!(serde_json::from_str::<Message>(golden).unwrap(), message);
    }
}

#[test]
fn unknown_fields_are_ignored_and_unknown_types_rejected() {
    for (golden, message) in cases() {
        let mut json: Json = serde_json::from_str(golden).unwrap();
        json["shoeSize"] = 43.into();
        assert_eq!(serde_json::from_value::<Message>(json.clone()).unwrap(), message);
        json["type"] = "WORK_STUFF".into();
        assert!(serde_json::from_value::<Message>(json).is_err());
    }
}

#[test]
fn message_without_legacy_fields_is_parsed() {
    let text = r#"{"type": "WORK_ITEM", "runId": "01234567-89ab-7def-8123-456789abcdef", "traceId": "xyz789",
        "partitionId": "partition-0", "minPrice": 0, "maxPrice": 999.99, "totalRecords": 5000, "offset": 30,
        "limit": 30, "updatedFrom": "2024-01-15T02:00:00Z", "updatedTo": "2024-01-16T02:00:00Z",
        "feed": "nivoda-natural"}"#;
    let expected = WorkItem { offset_end: 0, ..work_item() };
    assert_eq!(serde_json::from_str::<Message>(text).unwrap(), Message::WorkItem(expected));
}

#[test]
fn message_ids_contain_run_partition_and_offset() {
    let run = run_id();
    let ids: Vec<_> = cases().iter().map(|(_, message)| message.id()).collect();
    assert_eq!(ids[0], format!("{run}:partition-0:30"));
    assert_eq!(ids[1], format!("{run}:partition-29:0"));
    assert_eq!(ids[2], format!("work-done:{run}:partition-0"));
    assert_eq!(ids[4], format!("consolidate:{run}"));
    assert_eq!(work_item().at(60).id(), format!("{run}:partition-0:60"));
}

#[test]
fn invalid_price_is_rejected() {
    let golden = include_str!("golden/work_item.json");
    for bad in ["-1", "1e12", "0.001", "\"12\"", "null"] {
        let text = golden.replace("999.99", bad);
        assert!(serde_json::from_str::<Message>(&text).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn price_range_round_trips_to_the_cent(
        from in 0..PRICE_CEILING - 1_000,
        width in 1..1_000_000_i64,
        granularity in prop_oneof![Just(1_i64), Just(100)],
    ) {
        let range = FieldRange {
            from: from / granularity * granularity,
            to: ((from / granularity + width) * granularity).min(PRICE_CEILING),
        };
        let mut item = work_item();
        item.set_prices(range, granularity);
        let text = serde_json::to_string(&Message::WorkItem(item)).unwrap();
        let Message::WorkItem(back) = serde_json::from_str(&text).unwrap() else { panic!() };
        prop_assert_eq!(back.range(granularity), range);
    }
}
