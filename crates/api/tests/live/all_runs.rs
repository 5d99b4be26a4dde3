//! Events of all runs.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::RunId;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_testkit::interface::at;

use crate::reader::{EventPosition, StreamMessage};
use crate::{LiveFixture, StreamReader};

/// Returns every event of the table, ordered by run and sequence number.
async fn table(fixture: &LiveFixture) -> Vec<EventPosition> {
    let text = "SELECT run_id || ' ' || seq FROM {ops}.run_events";
    let rows = fixture.base.plain.texts(text).await.expect("the table is read");
    let mut positions: Vec<EventPosition> = rows
        .iter()
        .map(|row| {
            let (run, seq) = row.split_once(' ').expect("two parts");
            (run.parse().expect("a run"), seq.parse().expect("a number"))
        })
        .collect();
    positions.sort();
    positions
}

/// Checks that exactly these events were streamed, each run in order.
#[track_caller]
pub(super) fn exactly(received: &[EventPosition], expected: &[EventPosition]) {
    let mut last: BTreeMap<&RunId, i32> = BTreeMap::new();
    for (run, seq) in received {
        let before = last.insert(run, *seq);
        assert!(before.is_none_or(|before| before < *seq), "{run}: {seq} after {before:?}");
    }
    let missing: Vec<&EventPosition> =
        expected.iter().filter(|position| !received.contains(position)).collect();
    let strange: Vec<&EventPosition> =
        received.iter().filter(|position| !expected.contains(position)).collect();
    // The events of each run are ascending, so none is repeated.
    assert!(missing.is_empty() && strange.is_empty(), "lost {missing:?}, unexpected {strange:?}");
}

pub(crate) async fn events_are_streamed_as_they_are_written(fixture: LiveFixture) {
    let early = fixture.running("shop").await;
    let mut reader = fixture.reader("/v1/stream", None).await;
    let mut from_the_start = fixture.reader("/v1/stream?after=0", None).await;
    let mut received = from_the_start.positions(3).await;
    fixture.append_numbers(&early, 0..10).await;
    let late = fixture.running("bank").await;
    fixture.append_numbers(&late, 0..10).await;
    received.extend(from_the_start.positions(23).await);
    exactly(&received, &table(&fixture).await);
    let live = reader.positions(23).await;
    let expected: Vec<EventPosition> =
        table(&fixture).await.into_iter().filter(|(run, seq)| *run == late || *seq > 3).collect();
    exactly(&live, &expected);
    reader.check_silent().await;
}

pub(crate) async fn project_stream_has_only_its_own_events(fixture: LiveFixture) {
    let (shop, bank) = (fixture.running("shop").await, fixture.running("bank").await);
    let mut live = fixture.reader("/v1/stream?project=shop", None).await;
    let mut resumed = fixture.reader("/v1/stream?project=shop&after=0", None).await;
    assert_eq!(resumed.positions(3).await, [1, 2, 3].map(|seq| (shop.clone(), seq)));
    for round in 0..3 {
        fixture.append_numbers(&bank, round * 10..round * 10 + 10).await;
        fixture.append_numbers(&shop, round..round + 1).await;
        for reader in [&mut live, &mut resumed] {
            let seq = i32::try_from(round).expect("small") + 4;
            assert_eq!(reader.position().await, (shop.clone(), seq));
        }
    }
    live.check_silent().await;
    resumed.check_silent().await;
}

pub(crate) async fn reader_resumes_at_every_position_of_a_batch(fixture: LiveFixture) {
    let runs = [fixture.running("shop").await, fixture.running("bank").await, fixture.running("shop").await];
    let mut live = fixture.reader("/v1/stream?after=0", None).await;
    live.positions(9).await;
    let begin = live.last.clone().expect("an id");
    for run in &runs {
        fixture.append_numbers(run, 0..8).await;
    }
    let mut from_live = Vec::new();
    for _ in 0..24 {
        let (id, event) = live.next().await;
        from_live.push((id, (event.run_id, event.seq)));
    }
    let mut from_table = Vec::new();
    let mut reader = fixture.reader("/v1/stream", Some(&begin)).await;
    for _ in 0..24 {
        let (id, event) = reader.next().await;
        from_table.push((id, (event.run_id, event.seq)));
    }
    drop((live, reader));
    for received in [from_live, from_table] {
        let positions: Vec<EventPosition> = received.iter().map(|(_, position)| position.clone()).collect();
        let expected: Vec<EventPosition> =
            table(&fixture).await.into_iter().filter(|(_, seq)| *seq > 3).collect();
        exactly(&positions, &expected);
        for (number, (id, _)) in received.iter().enumerate() {
            let mut reader = fixture.reader("/v1/stream", Some(id)).await;
            let mut rest = reader.positions(23 - number).await;
            rest.extend_from_slice(&positions[..=number]);
            rest.sort();
            assert_eq!(rest, expected, "after event {number}");
        }
    }
}

pub(crate) async fn reader_without_events_yet_misses_nothing(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let mut reader = fixture.reader("/v1/stream", None).await;
    let nothing = tokio::time::timeout(Duration::from_millis(400), reader.next_message()).await;
    assert!(nothing.is_err(), "no event was expected, and {nothing:?} arrived");
    let begin = reader.last.clone().expect("a stream begins with its position");
    drop(reader);
    fixture.append_numbers(&run, 0..3).await;
    let mut reader = fixture.reader("/v1/stream", Some(&begin)).await;
    assert_eq!(reader.positions(3).await, [4, 5, 6].map(|seq| (run.clone(), seq)));
    reader.check_silent().await;
}

pub(crate) async fn reader_moves_between_servers(fixture: LiveFixture) {
    let servers = [fixture.interface.clone(), fixture.second_server().await];
    let run = fixture.running("shop").await;
    // A second reader at each position, so that each position has its own id.
    let mut others = Vec::new();
    for interface in &servers {
        others.push(StreamReader::open(interface, "/v1/stream?after=0", None).await);
    }
    let (mut received, mut last) = (Vec::new(), "0".to_owned());
    for round in 0..40 {
        let mut reader = StreamReader::open(&servers[round % 2], "/v1/stream", Some(&last)).await;
        fixture.append_numbers(&run, round * 3..round * 3 + 3).await;
        // Each time one event is left for the other server.
        received.extend(reader.positions(if round == 0 { 5 } else { 3 }).await);
        last = reader.last.clone().expect("an id");
    }
    received.push(StreamReader::open(&servers[0], "/v1/stream", Some(&last)).await.position().await);
    exactly(&received, &table(&fixture).await);
    for mut other in others {
        exactly(&other.positions(received.len()).await, &table(&fixture).await);
    }
}

/// Writes to a run of its own, a few events at a time, sometimes in a slow transaction.
async fn write(fixture: LiveFixture, run: RunId, calls: usize) {
    for call in 0..calls {
        let from = call * 4;
        if fixture.base.store.is_postgres() && fastrand::bool() {
            let text = format!(
                "BEGIN; SELECT pg_current_xact_id(); SELECT pg_sleep({}); \
                 SELECT ops.append_event('{run}', 'info', '{from}'); SELECT pg_sleep({}); COMMIT",
                fastrand::f64() * 0.05,
                fastrand::f64() * 0.1
            );
            fixture.base.plain.script(&text).await.expect("the transaction is committed");
        } else {
            fixture.append_numbers(&run, from..from + fastrand::usize(1..4)).await;
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
    }
}

pub(crate) async fn random_writers_and_reconnects_lose_and_repeat_nothing(fixture: LiveFixture) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut writers = Vec::new();
    for number in 0..6 {
        let run = fixture.running(if number % 2 == 0 { "shop" } else { "bank" }).await;
        writers.push(tokio::spawn(write(fixture.clone(), run, 40)));
    }
    let mut readers = Vec::new();
    for reader in 0..4_u64 {
        let fixture = fixture.clone();
        readers.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed ^ reader);
            let (mut received, mut last) = (Vec::new(), "0".to_owned());
            loop {
                let mut reader = fixture.reader("/v1/stream", Some(&last)).await;
                for _ in 0..random.usize(1..60) {
                    let (_, event) = reader.next().await;
                    last = reader.last.clone().expect("an id");
                    if event.message == "the end" {
                        return received;
                    }
                    received.push((event.run_id, event.seq));
                }
                if random.bool() {
                    tokio::time::sleep(Duration::from_millis(random.u64(..150))).await;
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("the writer is done");
    }
    // Ids sort by age: the youngest run is streamed last, also within a batch.
    let youngest = fixture.base.running(QueueRun::new("shop", "staging"), "ann", at(60)).await;
    let last = youngest.run_id;
    let expected: Vec<EventPosition> = table(&fixture).await;
    fixture.base.append_event(&last, tidemill_testkit::interface::info("the end"), at(1)).await;
    for reader in readers {
        exactly(&reader.await.expect("the reader got the end"), &expected);
    }
}

pub(crate) async fn slow_reader_is_disconnected_and_resumes(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let mut slow = fixture.reader("/v1/stream?after=0", None).await;
    let mut fast = fixture.reader(&format!("/v1/runs/{run}/stream"), None).await;
    let mut received = slow.positions(3).await;
    for round in 0..4 {
        fixture.append_numbers(&run, round * 500..round * 500 + 500).await;
        for _ in 0..if round == 0 { 503 } else { 500 } {
            fast.next().await;
        }
    }
    let mut reads = 0;
    while received.len() < 2_003 {
        match slow.next_message().await {
            StreamMessage::Event(_, event) => received.push((event.run_id, event.seq)),
            StreamMessage::Comment => {}
            StreamMessage::End => {
                reads += 1;
                assert!(
                    received.len() < 1_100,
                    "{} events were kept for a reader that does not read",
                    received.len()
                );
                let last = slow.last.clone();
                slow = fixture.reader("/v1/stream", last.as_deref()).await;
            }
        }
    }
    assert_eq!(reads, 1, "the slow reader was let go");
    exactly(&received, &table(&fixture).await);
    fast.check_silent().await;
}

pub(crate) async fn pruning_removes_only_pruned_events_from_streams(fixture: LiveFixture) {
    let mut doomed = Vec::new();
    for _ in 0..3 {
        let run = fixture.base.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        fixture.append_numbers(&run, 0..4).await;
        fixture.base.finish(&run, FinalStatus::Success, serde_json::json!({}), at(2)).await;
        doomed.push(run);
    }
    let mut reader = fixture.reader("/v1/stream?after=0", None).await;
    let mut received = reader.positions(10).await;
    let inside = reader.last.clone().expect("an id");
    received.extend(reader.positions(14).await);
    exactly(&received, &table(&fixture).await);
    let pruned = fixture.base.store.prune(at(3_600), 100).await.expect("what is old goes");
    assert_eq!(pruned.runs, 3);
    let kept = fixture.running("bank").await;
    fixture.append_numbers(&kept, 0..2).await;
    let expected = [1, 2, 3, 4, 5].map(|seq| (kept.clone(), seq));
    assert_eq!(reader.positions(5).await, expected);
    let mut resumed = fixture.reader("/v1/stream", Some(&inside)).await;
    assert_eq!(resumed.positions(5).await, expected);
    let mut again = fixture.reader("/v1/stream?after=0", None).await;
    assert_eq!(again.positions(5).await, expected);
    for reader in [&mut reader, &mut resumed, &mut again] {
        reader.check_silent().await;
    }
}
