//! PostgreSQL goes away in the middle of a sync, and connections are cut before any statement and after any commit.

use std::time::{Duration, Instant};

use tidemill_core::queue::{CONSOLIDATE, WORK_DONE, WORK_ITEMS};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, SyncSettings, Syncs};
use tidemill_engine::{Engine, Identity, Patience};
use tidemill_store::Store;
use tidemill_supplier::{Change, What};
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::mill::Mill;
use tidemill_testkit::proxy::{Fault, Proxy};
use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::ground::{Crew, Dice, PATIENCE, Role, change_queue, good, planned, settings, slow};

pub(crate) async fn the_server_is_restarted_in_the_middle_of_a_sync() {
    let mut dice = Dice::thrown();
    // It keeps what it has answered through its own crash, though not through a power cut.
    let options = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    let options = Options { settings: options, ..Options::default() };
    let mut cluster = block_in_place(|| Cluster::start(&options)).expect("a server starts");
    let stage = Stage::open_on(&cluster.url("postgres")).await;
    let mill = Mill::on(stage, slow(2_000, 5), settings()).await;
    let crew = Crew::whole(&mill.syncs);
    for round in 0..2 {
        let run = mill.queue(true).await;
        if round == 0 {
            planned(&mill, &run).await;
        }
        for how in [Shutdown::Fast, Shutdown::Immediate] {
            dice.pause(700).await;
            block_in_place(|| cluster.restart(how)).expect("the server comes back");
        }
        let began = Instant::now();
        // Reading goes on as soon as the pool has noticed.
        while mill.stage.store.feeds().await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the store does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let done = good(&mill, &run).await;
        mill.check_equal().await;
        // No lock has to run out: two minutes for a page, five for a consolidation.
        let took = began.elapsed();
        println!("round {round}: done {:.1} s after the last restart", took.as_secs_f64());
        assert!(took < Duration::from_secs(110), "{took:?}: {done:?}");
        mill.supplier.handle.change(&Change::some(What::Price, 300, round)).expect("prices change");
    }
    crew.stop().await;
    mill.stage.close().await;
}

/// A role that looks once and ends, and whose connection is cut at that look: it says that it failed, and not that
/// there was nothing to do.
pub(crate) async fn a_look_that_failed_is_no_success() {
    let mill = Mill::with(Kind::Postgres, slow(60, 0), small()).await;
    let proxy = Proxy::in_front_of(&mill.stage.url).await.expect("the proxy starts");
    let database = mill.stage.url.rsplit('/').next().expect("the address names a database");
    let options = tidemill_store::Options::new(proxy.url(database), host_now);
    let store = Store::open(&options).await.expect("the store opens");
    let syncs = Syncs::new(Engine::new(store.clone(), Clock::Database, Patience::None), small());
    let (_stop, told) = watch::channel(false);
    let look = async |role: Role| {
        let identity = Identity { name: format!("{role:?}"), host: "here".to_owned(), labels: Vec::new() };
        match role {
            Role::Scheduler => syncs.schedule(identity, true, told.clone()).await,
            Role::Worker => {
                let options = PagerOptions { once: true, ..PagerOptions::default() };
                syncs.work_pages(identity, &options, told.clone()).await
            }
            Role::Consolidator => {
                let options = ConsolidatorOptions { once: true, ..ConsolidatorOptions::default() };
                syncs.consolidate(identity, &options, told.clone()).await
            }
        }
    };
    for (role, place) in [
        (Role::Scheduler, "claim_next_run"),
        (Role::Worker, "receive_messages"),
        (Role::Consolidator, "receive_messages"),
    ] {
        let armed = proxy.arm(Fault::cut_before(place));
        let ended = look(role).await;
        assert_eq!(armed.fired(), 1, "{role:?} did not look");
        assert!(ended.is_err(), "{role:?}: {ended:?}");
        armed.disarm();
        assert_eq!(look(role).await.expect("it looks"), 0, "{role:?}");
    }
    store.close().await;
}

/// Statements of a page and of a batch; the empty one is any statement.
const PLACES: [&str; 12] = [
    "",
    "",
    "",
    "",
    "ops.store_page",
    "ops.store_page",
    "UPDATE public.partition_progress",
    "INTO ops.messages",
    "receive_messages",
    "INTO public.diamonds AS d",
    "SET consolidated_to",
    "UPDATE public.run_metadata",
];

fn fault(dice: &mut Dice) -> Fault {
    let place = PLACES[usize::try_from(dice.below(PLACES.len() as u64)).unwrap_or(0)];
    let below = if place.is_empty() { 400 } else { 12 };
    let nth = u32::try_from(1 + dice.below(below)).unwrap_or(1);
    match dice.below(3) {
        0 => Fault::cut_before(place).nth(nth),
        1 => Fault::cut_after_commit_of(place).nth(nth),
        _ => Fault::cut_after_commit().nth(u32::try_from(1 + dice.below(60)).unwrap_or(1)),
    }
}

fn small() -> SyncSettings {
    SyncSettings { partition_target: 60, partition_min: 30, batch: 60, upsert: 30, ..settings() }
}

/// Syncs, each with some connections cut at places that its seed chooses, for as long as there is time.
pub(crate) async fn simulation(lasts: Duration) {
    let began = Instant::now();
    let first = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = first.unwrap_or_else(|| host_now().timestamp_micros().unsigned_abs());
    let mill = Mill::with(Kind::Postgres, slow(300, 0), small()).await;
    // An answer that is lost on its way is a delivery that nobody got: here that happens all the time.
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        change_queue(&mill, queue, |settings| settings.deliveries_max = 90).await;
    }
    let (mut seeds, mut cuts) = (0, 0);
    while began.elapsed() < lasts {
        cuts += one(&mill, first + seeds).await;
        seeds += 1;
    }
    println!("{seeds} seeds, {cuts} connections cut, {:.1} s", began.elapsed().as_secs_f64());
    assert!(cuts > 0, "nothing was cut");
}

/// One sync; how many connections were cut.
async fn one(mill: &Mill, seed: u64) -> u32 {
    let mut dice = Dice::of(seed);
    for what in [What::Price, What::Media, What::Vanish, What::Return, What::Add] {
        let count = u32::try_from(dice.below(20)).unwrap_or(0);
        mill.supplier.handle.change(&Change::some(what, count, seed)).expect("stones change");
    }
    let proxy = Proxy::in_front_of(&mill.stage.url).await.expect("the proxy starts");
    let database = mill.stage.url.rsplit('/').next().expect("the address names a database");
    let options = tidemill_store::Options::new(proxy.url(database), host_now);
    let store = Store::open(&options).await.expect("the store opens");
    let syncs = Syncs::new(Engine::new(store.clone(), Clock::Database, Patience::None), small());
    let faults: Vec<_> = (0..=dice.below(8)).map(|_| proxy.arm(fault(&mut dice))).collect();
    let mut crew = Crew::keeper(&mill.syncs);
    for role in [Role::Scheduler, Role::Worker, Role::Worker, Role::Consolidator, Role::Consolidator] {
        crew.start_on(&syncs, role);
    }
    let run = mill.queue(true).await;
    good(mill, &run).await;
    mill.check_equal().await;
    let alive = mill.expected();
    let deleted = mill.rows("deleted").await;
    assert!(deleted.keys().all(|stone| !alive.contains_key(stone)), "something alive is deleted");
    for fault in &faults {
        fault.disarm();
    }
    crew.stop().await;
    store.close().await;
    faults.iter().map(tidemill_testkit::proxy::Armed::fired).sum()
}
