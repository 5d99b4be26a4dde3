//! Events of a run: in order, without gaps, each once.

use chrono::TimeDelta;
use serde_json::json;
use std::collections::BTreeSet;
use tidemill_core::RunId;
use tidemill_core::event::{EventKind, Level, NewEvent};
use tidemill_core::limits::{MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use tidemill_core::live::Point;
use tidemill_core::run::{FinalStatus, RunState};
use tidemill_store::{EventTail, FinishRun, Holder, LivePage, RefusalCode};

use super::at_once;
use crate::interface::{Fixture, at, info, new_run_id, refused, request};

/// The seed's automatic transition: a state change event precedes the first event.
pub async fn first_event_starts_the_run(fixture: Fixture) {
    let claim = fixture.claimed(request(), "worker-001", at(0)).await;
    let event = NewEvent { payload: json!({"step": "build"}), ..info("Starting build process") };
    let id = fixture.append_event(&claim.run_id, event, at(5)).await;
    assert_eq!(id, Some(format!("evt-{}-4", claim.run_id.as_str().trim_start_matches("run-"))));
    let run = fixture.run(&claim.run_id).await;
    assert_eq!(
        (run.status, run.started_at, run.lease_until),
        (RunState::Running, Some(at(0)), Some(at(305)))
    );
    let messages = ["Run queued", "Run claimed by worker", "Run started", "Starting build process"];
    assert_eq!(fixture.messages(&claim.run_id).await, messages);
}

/// The trigger records the old and the new state.
pub async fn every_state_change_is_an_event(fixture: Fixture) {
    let claim = fixture.claimed(request(), "worker-001", at(1)).await;
    fixture.append_event(&claim.run_id, info("hello"), at(2)).await;
    fixture.finish(&claim.run_id, FinalStatus::Failed, json!({"exit_code": 1}), at(3)).await;
    let record: Vec<_> = fixture
        .events(&claim.run_id)
        .await
        .into_iter()
        .map(|event| (event.seq, event.kind, event.level, event.message, event.payload, event.created_at))
        .collect();
    let line = |seq, level, message: &str, payload, second| {
        (seq, EventKind::Transition, level, message.to_owned(), payload, at(second))
    };
    assert_eq!(
        record,
        [
            line(1, Level::Info, "Run queued", json!({"to": "queued"}), 1),
            line(
                2,
                Level::Info,
                "Run claimed by worker",
                json!({"from": "queued", "to": "claimed", "worker_id": "worker-001"}),
                1
            ),
            line(3, Level::Info, "Run started", json!({"from": "claimed", "to": "running"}), 2),
            (4, EventKind::Log, Level::Info, "hello".to_owned(), json!({}), at(2)),
            line(
                5,
                Level::Error,
                "Run failed",
                json!({"from": "running", "to": "failed", "cause": "reported"}),
                3
            ),
        ]
    );
}

/// Eight concurrent writers: each gets the ids of its own events.
pub async fn event_numbers_have_no_gaps(fixture: Fixture) {
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    let ids = at_once(8, |number| {
        let (fixture, run) = (fixture.clone(), run.clone());
        async move {
            let mut ids = Vec::new();
            for line in 0..6 {
                let one = fixture.append_event(&run, info(&format!("{number}: {line}")), at(1)).await;
                let events = vec![info(&format!("{number}: {line} a")), info(&format!("{number}: {line} b"))];
                ids.push(one);
                ids.extend(fixture.append(&run, events, Holder::default(), at(1)).await);
            }
            ids
        }
    })
    .await;
    let unique: BTreeSet<_> = ids.iter().flatten().flatten().collect();
    assert_eq!(unique.len(), 8 * 18, "an id for every event");
    let events = fixture.events(&run).await;
    let numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=3 + 8 * 18).collect::<Vec<_>>());
    for event in events {
        assert_eq!(event.event_id, format!("evt-{}-{}", run.as_str().trim_start_matches("run-"), event.seq));
    }
}

/// A key identifies an event, regardless of its content and time.
pub async fn repeated_event_key_is_stored_once(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let first = fixture.append_event(&run, info("line").keyed("out-1"), at(1)).await;
    let again = fixture.append_event(&run, info("line").keyed("out-1"), at(200)).await;
    let other_words = fixture.append_event(&run, info("another line").keyed("out-1"), at(201)).await;
    assert!(first.is_some());
    assert_eq!((&again, &other_words), (&first, &first));
    let equal_line = fixture.append_event(&run, info("line").keyed("out-2"), at(201)).await;
    assert_ne!(equal_line, first, "equal lines with keys of their own are two lines");
    let lines = fixture.messages(&run).await.iter().filter(|message| *message == "line").count();
    assert_eq!(lines, 2);
}

/// The seed's rule: without a key, equal level, message and payload within ten seconds are one event.
pub async fn equal_events_without_key_within_ten_seconds_are_one(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let first = fixture.append_event(&run, info("tick"), at(10)).await;
    assert_eq!(fixture.append_event(&run, info("tick"), at(11)).await, first);
    let last_moment = at(20) - TimeDelta::microseconds(1);
    assert_eq!(fixture.append_event(&run, info("tick"), last_moment).await, first);
    let later = fixture.append_event(&run, info("tick"), at(20)).await;
    assert_ne!(later, first, "ten seconds have passed since the first");
    assert_eq!(fixture.append_event(&run, info("tick"), at(25)).await, later, "and the window starts again");
}

pub async fn different_level_message_or_payload_is_a_new_event(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let base = NewEvent { payload: json!({"a": 1, "b": 2}), ..info("tick") };
    let same = NewEvent { payload: json!({"b": 2, "a": 1}), ..info("tick") };
    let first = fixture.append_event(&run, base.clone(), at(1)).await;
    assert_eq!(fixture.append_event(&run, same, at(2)).await, first, "the order of keys is irrelevant");
    let mut ids = BTreeSet::from([first]);
    for other in [
        NewEvent { payload: json!({"a": 1, "b": 3}), ..base.clone() },
        NewEvent { payload: json!({}), ..base.clone() },
        NewEvent { level: Level::Warn, ..base.clone() },
        NewEvent { message: "tock".to_owned(), ..base.clone() },
        base.keyed("k"),
    ] {
        assert!(
            ids.insert(fixture.append_event(&run, other.clone(), at(3)).await),
            "{other:?} was confused with another"
        );
    }
}

/// Repeated events within a batch are stored once and get one id.
pub async fn event_batch_keeps_its_order(fixture: Fixture) {
    let run = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    let batch = vec![
        info("one").keyed("1"),
        info("two").keyed("2"),
        info("one").keyed("1"),
        info("three"),
        info("three"),
        NewEvent::new(Level::Debug, ""),
    ];
    let ids = fixture.append(&run, batch, Holder::default(), at(1)).await;
    assert_eq!(ids.len(), 6);
    assert!(ids.iter().all(Option::is_some));
    assert_eq!((&ids[2], &ids[4]), (&ids[0], &ids[3]));
    assert_eq!(fixture.messages(&run).await[3..], ["one", "two", "three", ""]);
}

pub async fn event_is_stored_unchanged(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let payload = json!({"text": "ä\u{1F600}\n\t\"'\\", "number": 1.5, "big": 9_007_199_254_740_991_i64,
                         "list": [null, true, {}]});
    let event = NewEvent {
        level: Level::Error,
        message: "line with 'quotes', \"more\", \\ and ä\u{1F600}".to_owned(),
        payload,
        key: Some("k:1".to_owned()),
    };
    fixture.append_event(&run, event.clone(), at(1)).await;
    let events = fixture.events(&run).await;
    let Some(stored) = events.last() else { panic!("there are no events") };
    assert_eq!(
        (stored.level, &stored.message, &stored.payload),
        (event.level, &event.message, &event.payload)
    );
    assert_eq!((&stored.event_key, stored.kind, stored.created_at), (&event.key, EventKind::Log, at(1)));
}

/// The maximum size is accepted; one more byte is refused, and nothing is written.
pub async fn event_over_the_size_limit_is_refused(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let quotes = r#"{"text": ""}"#.len();
    let sized = |message: usize, payload: usize| NewEvent {
        payload: json!({"text": "x".repeat(payload - quotes)}),
        ..info(&"m".repeat(message))
    };
    assert!(fixture.append_event(&run, sized(MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX), at(1)).await.is_some());
    let before = fixture.tables().await;
    for event in [sized(MESSAGE_BYTES_MAX + 1, 100), sized(10, PAYLOAD_BYTES_MAX + 100)] {
        let events = vec![info("fine"), event];
        let answer = fixture.interface.append(run.clone(), events, Holder::default(), at(2)).await;
        refused(answer, RefusalCode::TooLarge);
    }
    fixture.unchanged(&before).await;
}

/// An event renews the lease once a fifth of it has passed.
pub async fn event_renews_the_lease(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.append_event(&run, info("soon"), at(10)).await;
    assert_eq!(fixture.run(&run).await.lease_until, Some(at(300)), "not for every line");
    fixture.append_event(&run, info("later"), at(70)).await;
    assert_eq!(fixture.run(&run).await.lease_until, Some(at(370)));
    assert!(fixture.sweep(at(301)).await.is_empty());
}

/// After a lost answer and the end of the run, a known key is answered and nothing is written.
pub async fn repeated_event_is_answered_after_the_end(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let first = fixture.append_event(&run, info("line").keyed("out-1"), at(1)).await;
    fixture.succeed(&run, at(2)).await;
    let before = fixture.tables().await;
    assert_eq!(fixture.append_event(&run, info("line").keyed("out-1"), at(3)).await, first);
    fixture.unchanged(&before).await;
}

pub async fn queued_run_accepts_no_events(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    assert_eq!(fixture.append_event(&run, info("hello"), at(1)).await, None);
    assert_eq!(fixture.status(&run).await, RunState::Queued);
    assert_eq!(fixture.messages(&run).await, ["Run queued", "Refused append: the lease is gone"]);
}

/// In order, in pages, filtered by level and by text with special characters.
pub async fn events_are_read_from_the_end(fixture: Fixture) {
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id;
    let said = [
        (Level::Debug, "one"),
        (Level::Warn, "100% of it"),
        (Level::Info, "1000 of it"),
        (Level::Error, "under_score and back\\slash"),
        (Level::Info, "UnderXscore"),
    ];
    for (second, (level, message)) in (1..).zip(said) {
        fixture.append_event(&run, NewEvent { level, ..info(message) }, at(second)).await;
    }
    let read = async |wanted: EventTail| {
        let wanted = EventTail { limit: if wanted.limit == 0 { 100 } else { wanted.limit }, ..wanted };
        let (events, before) = match fixture.store.event_tail(run.clone(), wanted).await {
            Ok(found) => found,
            Err(error) => panic!("the record is not read: {error}"),
        };
        (events.into_iter().map(|event| event.seq).collect::<Vec<_>>(), before)
    };
    let all = EventTail::default;
    assert_eq!(read(all()).await, ((1..=8).collect(), None));
    assert_eq!(read(EventTail { limit: 3, ..all() }).await, (vec![6, 7, 8], Some(6)));
    assert_eq!(read(EventTail { limit: 3, before: Some(6), ..all() }).await, (vec![3, 4, 5], Some(3)));
    assert_eq!(read(EventTail { limit: 3, before: Some(3), ..all() }).await, (vec![1, 2], None));
    assert_eq!(read(EventTail { before: Some(1), ..all() }).await, (vec![], None));
    assert_eq!(read(EventTail { level: Some(Level::Warn), ..all() }).await.0, [5, 7]);
    assert_eq!(read(EventTail { level: Some(Level::Error), ..all() }).await.0, [7]);
    let find = |text: &str| EventTail { contains: Some(text.to_owned()), ..EventTail::default() };
    assert_eq!(read(find("0% of")).await.0, [5]);
    assert_eq!(read(find("_SCORE")).await.0, [7]);
    assert_eq!(read(find("back\\s")).await.0, [7]);
    assert_eq!(read(find("of it")).await.0, [5, 6]);
    assert_eq!(read(find("nowhere")).await, (vec![], None));
}

/// Returns the events that became readable since the last call, in the order of the stream, as run and number.
async fn new_events(fixture: &Fixture, since: &mut Point) -> Vec<(RunId, i32)> {
    let Ok(until) = fixture.store.live_point().await else { panic!("the point is not read") };
    let page =
        LivePage { since: since.clone(), until: until.clone(), after: None, project: None, limit: 1_000 };
    let Ok(events) = fixture.store.live_page(page).await else { panic!("the page is not read") };
    *since = until;
    events.into_iter().map(|found| (found.event.run_id, found.event.seq)).collect()
}

/// A reader that looks after each call gets exactly the events of that call, whichever tables they are in.
pub async fn events_of_every_verb_are_readable_after_its_commit(fixture: Fixture) {
    let mut since = Point::START;
    let one = fixture.queue(request(), at(0)).await;
    assert_eq!(new_events(&fixture, &mut since).await, [(one.clone(), 1)]);
    let mut batch: Vec<RunId> = (1..=3).map(|second| new_run_id(at(second))).collect();
    batch.sort();
    let requests = batch.iter().map(|run| (request(), run.clone())).collect();
    assert!(fixture.interface.queue_many(requests, at(1)).await.is_ok());
    let of_batch = |seq: i32| batch.iter().map(move |run| (run.clone(), seq)).collect::<Vec<_>>();
    assert_eq!(new_events(&fixture, &mut since).await, of_batch(1));

    let Some(claim) = fixture.claim("worker-001", at(2)).await else { panic!("a run is queued") };
    assert_eq!((&claim.run_id, new_events(&fixture, &mut since).await), (&one, vec![(one.clone(), 2)]));
    fixture.start(&claim, "worker-001", at(2)).await;
    assert_eq!(new_events(&fixture, &mut since).await, [(one.clone(), 3)]);
    fixture.append(&one, vec![info("a"), info("b")], Holder::default(), at(3)).await;
    assert_eq!(new_events(&fixture, &mut since).await, [(one.clone(), 4), (one.clone(), 5)]);
    fixture.succeed(&one, at(4)).await;
    assert_eq!(new_events(&fixture, &mut since).await, [(one.clone(), 6)]);

    for _ in &batch {
        assert!(fixture.claim("worker-001", at(5)).await.is_some());
    }
    assert_eq!(new_events(&fixture, &mut since).await, of_batch(2));
    // Claimed runs that are finished: each gets two events.
    let ends = batch.iter().zip([FinalStatus::Success, FinalStatus::Failed, FinalStatus::Success]);
    let ends =
        ends.map(|(run, status)| FinishRun { run_id: run.clone(), status, metadata: json!({}), epoch: None });
    assert!(fixture.interface.finish(ends.collect(), None, at(6)).await.is_ok());
    let mut ended = [of_batch(3), of_batch(4)].concat();
    ended.sort();
    assert_eq!(new_events(&fixture, &mut since).await, ended);

    let next = fixture.retry(&batch[1], at(7)).await.run_id;
    let of_retry = new_events(&fixture, &mut since).await;
    assert!(of_retry.contains(&(next.clone(), 1)), "{of_retry:?}");
    fixture.cancel(&next, at(8)).await;
    let of_cancel = new_events(&fixture, &mut since).await;
    assert!(of_cancel.iter().all(|(run, _)| *run == next) && !of_cancel.is_empty(), "{of_cancel:?}");
    assert_eq!(new_events(&fixture, &mut since).await, []);
}

/// A line that arrives after the end gets the next number; what was read before keeps its numbers and ids.
pub async fn late_log_line_keeps_the_numbers_of_earlier_events(fixture: Fixture) {
    let claim = fixture.claimed(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    fixture.finish_as(&claim, "worker-001", FinalStatus::Success, at(1)).await;
    let before = fixture.events(&run).await;
    assert_eq!(before.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(fixture.append_event(&run, info("too late"), at(2)).await, None);
    let insert = format!(
        "INSERT INTO {{ops}}.run_events (run_id, seq, level, message) VALUES ('{run}', 6, 'info', 'by hand')"
    );
    assert_eq!(fixture.plain.execute(&insert).await.map_err(|bad| bad.to_string()), Ok(1));
    let after = fixture.events(&run).await;
    assert_eq!(after[..4], before);
    let late: Vec<_> = after[4..].iter().map(|event| (event.seq, event.message.as_str())).collect();
    assert_eq!(late, [(5, "Refused append: the lease is gone"), (6, "by hand")]);
    // The numbers within a row that is two events are taken too.
    for seq in [3, 4] {
        let again = insert.replace(", 6,", &format!(", {seq},"));
        assert!(fixture.plain.execute(&again).await.is_err(), "number {seq} is taken");
    }
    assert_eq!(fixture.events(&run).await, after);
}
