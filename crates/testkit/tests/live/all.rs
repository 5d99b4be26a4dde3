//! Everybody's events.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::RunId;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_testkit::door::at;

use crate::tap::{Place, Said};
use crate::{Scene, Tap};

/// Every event of the table, in the order of runs and numbers.
async fn table(scene: &Scene) -> Vec<Place> {
    let text = "SELECT run_id || ' ' || seq FROM {ops}.run_events";
    let rows = scene.stage.plain.texts(text).await.expect("the table is read");
    let mut places: Vec<Place> = rows
        .iter()
        .map(|row| {
            let (run, seq) = row.split_once(' ').expect("two parts");
            (run.parse().expect("a run"), seq.parse().expect("a number"))
        })
        .collect();
    places.sort();
    places
}

/// Makes sure that these are exactly those, and that each run's come in its order.
#[track_caller]
pub(super) fn exactly(told: &[Place], expected: &[Place]) {
    let mut last: BTreeMap<&RunId, i32> = BTreeMap::new();
    for (run, seq) in told {
        let before = last.insert(run, *seq);
        assert!(before.is_none_or(|before| before < *seq), "{run}: {seq} after {before:?}");
    }
    let missing: Vec<&Place> = expected.iter().filter(|place| !told.contains(place)).collect();
    let strange: Vec<&Place> = told.iter().filter(|place| !expected.contains(place)).collect();
    // Each run's come in ascending order, so none is told twice.
    assert!(missing.is_empty() && strange.is_empty(), "lost {missing:?}, told {strange:?}");
}

pub(crate) async fn everything_is_told_as_it_is_written(scene: Scene) {
    let early = scene.running("shop").await;
    let mut tap = scene.tap("/v1/stream", None).await;
    let mut from_the_start = scene.tap("/v1/stream?after=0", None).await;
    let mut told = from_the_start.places(3).await;
    scene.say(&early, 0..10).await;
    let late = scene.running("bank").await;
    scene.say(&late, 0..10).await;
    told.extend(from_the_start.places(23).await);
    exactly(&told, &table(&scene).await);
    let live = tap.places(23).await;
    let expected: Vec<Place> =
        table(&scene).await.into_iter().filter(|(run, seq)| *run == late || *seq > 3).collect();
    exactly(&live, &expected);
    tap.silent().await;
}

pub(crate) async fn a_project_is_told_its_own_events_alone(scene: Scene) {
    let (shop, bank) = (scene.running("shop").await, scene.running("bank").await);
    let mut live = scene.tap("/v1/stream?project=shop", None).await;
    let mut resumed = scene.tap("/v1/stream?project=shop&after=0", None).await;
    assert_eq!(resumed.places(3).await, [1, 2, 3].map(|seq| (shop.clone(), seq)));
    for round in 0..3 {
        scene.say(&bank, round * 10..round * 10 + 10).await;
        scene.say(&shop, round..round + 1).await;
        for tap in [&mut live, &mut resumed] {
            let seq = i32::try_from(round).expect("small") + 4;
            assert_eq!(tap.place().await, (shop.clone(), seq));
        }
    }
    live.silent().await;
    resumed.silent().await;
}

pub(crate) async fn a_reader_resumes_at_every_place_of_a_batch(scene: Scene) {
    let runs = [scene.running("shop").await, scene.running("bank").await, scene.running("shop").await];
    let mut live = scene.tap("/v1/stream?after=0", None).await;
    live.places(9).await;
    let begin = live.last.clone().expect("an id");
    for run in &runs {
        scene.say(run, 0..8).await;
    }
    let mut from_live = Vec::new();
    for _ in 0..24 {
        let (id, event) = live.next().await;
        from_live.push((id, (event.run_id, event.seq)));
    }
    let mut from_table = Vec::new();
    let mut tap = scene.tap("/v1/stream", Some(&begin)).await;
    for _ in 0..24 {
        let (id, event) = tap.next().await;
        from_table.push((id, (event.run_id, event.seq)));
    }
    drop((live, tap));
    for told in [from_live, from_table] {
        let places: Vec<Place> = told.iter().map(|(_, place)| place.clone()).collect();
        let expected: Vec<Place> = table(&scene).await.into_iter().filter(|(_, seq)| *seq > 3).collect();
        exactly(&places, &expected);
        for (number, (id, _)) in told.iter().enumerate() {
            let mut tap = scene.tap("/v1/stream", Some(id)).await;
            let mut rest = tap.places(23 - number).await;
            rest.extend_from_slice(&places[..=number]);
            rest.sort();
            assert_eq!(rest, expected, "after event {number}");
        }
    }
}

pub(crate) async fn a_reader_that_got_nothing_yet_misses_nothing(scene: Scene) {
    let run = scene.running("shop").await;
    let mut tap = scene.tap("/v1/stream", None).await;
    let nothing = tokio::time::timeout(Duration::from_millis(400), tap.said()).await;
    assert!(nothing.is_err(), "there is nothing to tell, and {nothing:?} was told");
    let begin = tap.last.clone().expect("a stream says where it begins");
    drop(tap);
    scene.say(&run, 0..3).await;
    let mut tap = scene.tap("/v1/stream", Some(&begin)).await;
    assert_eq!(tap.places(3).await, [4, 5, 6].map(|seq| (run.clone(), seq)));
    tap.silent().await;
}

pub(crate) async fn a_reader_goes_from_server_to_server(scene: Scene) {
    let doors = [scene.door.clone(), scene.beside().await];
    let run = scene.running("shop").await;
    // Somebody else reads at each, so that each has a place of its own.
    let mut others = Vec::new();
    for door in &doors {
        others.push(Tap::open(door, "/v1/stream?after=0", None).await);
    }
    let (mut told, mut last) = (Vec::new(), "0".to_owned());
    for round in 0..40 {
        let mut tap = Tap::open(&doors[round % 2], "/v1/stream", Some(&last)).await;
        scene.say(&run, round * 3..round * 3 + 3).await;
        // Each time one is left over, for the other server.
        told.extend(tap.places(if round == 0 { 5 } else { 3 }).await);
        last = tap.last.clone().expect("an id");
    }
    told.push(Tap::open(&doors[0], "/v1/stream", Some(&last)).await.place().await);
    exactly(&told, &table(&scene).await);
    for mut other in others {
        exactly(&other.places(told.len()).await, &table(&scene).await);
    }
}

/// Writes to a run of its own, a few events at a time, now and then in a transaction that takes its time.
async fn write(scene: Scene, run: RunId, calls: usize) {
    for call in 0..calls {
        let from = call * 4;
        if scene.stage.store.is_postgres() && fastrand::bool() {
            let text = format!(
                "BEGIN; SELECT pg_current_xact_id(); SELECT pg_sleep({}); \
                 SELECT ops.append_event('{run}', 'info', '{from}'); SELECT pg_sleep({}); COMMIT",
                fastrand::f64() * 0.05,
                fastrand::f64() * 0.1
            );
            scene.stage.plain.script(&text).await.expect("the transaction is committed");
        } else {
            scene.say(&run, from..from + fastrand::usize(1..4)).await;
        }
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
    }
}

pub(crate) async fn random_writers_and_random_reconnects_lose_and_double_nothing(scene: Scene) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut writers = Vec::new();
    for number in 0..6 {
        let run = scene.running(if number % 2 == 0 { "shop" } else { "bank" }).await;
        writers.push(tokio::spawn(write(scene.clone(), run, 40)));
    }
    let mut readers = Vec::new();
    for reader in 0..4_u64 {
        let scene = scene.clone();
        readers.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed ^ reader);
            let (mut told, mut last) = (Vec::new(), "0".to_owned());
            loop {
                let mut tap = scene.tap("/v1/stream", Some(&last)).await;
                for _ in 0..random.usize(1..60) {
                    let (_, event) = tap.next().await;
                    last = tap.last.clone().expect("an id");
                    if event.message == "the end" {
                        return told;
                    }
                    told.push((event.run_id, event.seq));
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
    // Ids sort by age: the youngest run is the last that is told, also where its batch holds others.
    let youngest = scene.stage.running(QueueRun::new("shop", "staging"), "ann", at(60)).await;
    let last = youngest.run_id;
    let expected: Vec<Place> = table(&scene).await;
    scene.stage.say(&last, tidemill_testkit::door::info("the end"), at(1)).await;
    for reader in readers {
        exactly(&reader.await.expect("the reader got the end"), &expected);
    }
}

pub(crate) async fn a_slow_reader_is_let_go_and_resumes(scene: Scene) {
    let run = scene.running("shop").await;
    let mut slow = scene.tap("/v1/stream?after=0", None).await;
    let mut fast = scene.tap(&format!("/v1/runs/{run}/stream"), None).await;
    let mut told = slow.places(3).await;
    for round in 0..4 {
        scene.say(&run, round * 500..round * 500 + 500).await;
        for _ in 0..if round == 0 { 503 } else { 500 } {
            fast.next().await;
        }
    }
    let mut reads = 0;
    while told.len() < 2_003 {
        match slow.said().await {
            Said::Event(_, event) => told.push((event.run_id, event.seq)),
            Said::Comment => {}
            Said::End => {
                reads += 1;
                assert!(
                    told.len() < 1_100,
                    "{} events were kept for a reader that does not read",
                    told.len()
                );
                let last = slow.last.clone();
                slow = scene.tap("/v1/stream", last.as_deref()).await;
            }
        }
    }
    assert_eq!(reads, 1, "the slow reader was let go");
    exactly(&told, &table(&scene).await);
    fast.silent().await;
}

pub(crate) async fn pruned_events_vanish_and_nothing_else(scene: Scene) {
    let mut doomed = Vec::new();
    for _ in 0..3 {
        let run = scene.stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
        scene.say(&run, 0..4).await;
        scene.stage.finish(&run, FinalStatus::Success, serde_json::json!({}), at(2)).await;
        doomed.push(run);
    }
    let mut tap = scene.tap("/v1/stream?after=0", None).await;
    let mut told = tap.places(10).await;
    let inside = tap.last.clone().expect("an id");
    told.extend(tap.places(14).await);
    exactly(&told, &table(&scene).await);
    let pruned = scene.stage.store.prune(at(3_600), 100).await.expect("what is old goes");
    assert_eq!(pruned.runs, 3);
    let kept = scene.running("bank").await;
    scene.say(&kept, 0..2).await;
    let expected = [1, 2, 3, 4, 5].map(|seq| (kept.clone(), seq));
    assert_eq!(tap.places(5).await, expected);
    let mut resumed = scene.tap("/v1/stream", Some(&inside)).await;
    assert_eq!(resumed.places(5).await, expected);
    let mut again = scene.tap("/v1/stream?after=0", None).await;
    assert_eq!(again.places(5).await, expected);
    for tap in [&mut tap, &mut resumed, &mut again] {
        tap.silent().await;
    }
}
