//! PostgreSQL stops in the middle of a sync, and connections are cut before any statement and after any commit.

use std::time::{Duration, Instant};

use tidemill_core::queue::{CONSOLIDATE, WORK_DONE, WORK_ITEMS};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, SyncSettings, Syncs};
use tidemill_engine::{Engine, Identity, RetryPolicy};
use tidemill_store::Store;
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::proxy::{Fault, Proxy};
use tidemill_testkit::sync_fixture::SyncFixture;
use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::fixture::{
    Rng, Role, RoleSet, Subject, TIMEOUT, change_queue, open, planned, settings, slow, succeeded,
};

pub(crate) async fn sync_survives_a_database_restart() {
    let mut dice = Rng::seeded();
    // Answered commits survive a crash of the server, though not a power failure.
    let options = vec![("synchronous_commit".to_owned(), "on".to_owned())];
    let options = Options { settings: options, ..Options::default() };
    let mut cluster = block_in_place(|| Cluster::start(&options)).expect("a server starts");
    let base = Fixture::open_on(&cluster.url("postgres")).await;
    let fixture = SyncFixture::on(base, slow(2_000, 5), settings()).await;
    let roles = RoleSet::full(&fixture.syncs);
    for round in 0..2 {
        let run = fixture.queue(true).await;
        if round == 0 {
            planned(&fixture, &run).await;
        }
        for how in [Shutdown::Fast, Shutdown::Immediate] {
            dice.pause(700).await;
            block_in_place(|| cluster.restart(how)).expect("the server restarts");
        }
        let began = Instant::now();
        // Reads work again as soon as the pool has noticed.
        while fixture.base.store.feeds().await.is_err() {
            assert!(began.elapsed() < TIMEOUT, "the store does not recover");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let done = succeeded(&fixture, &run).await;
        fixture.check_equal().await;
        // No lock has to expire: two minutes for a page, five for a consolidation.
        let took = began.elapsed();
        println!("round {round}: done {:.1} s after the last restart", took.as_secs_f64());
        assert!(took < Duration::from_secs(110), "{took:?}: {done:?}");
        fixture
            .supplier
            .handle
            .change(&Change::random(ChangeKind::Price, 300, round))
            .expect("prices change");
    }
    roles.stop().await;
    fixture.base.close().await;
}

/// A one-shot role whose connection is cut during its check must report the failure, not that there was nothing to do.
pub(crate) async fn failed_check_is_not_a_success() {
    let fixture = SyncFixture::with(Kind::Postgres, slow(60, 0), small()).await;
    let proxy = Proxy::in_front_of(&fixture.base.url).await.expect("the proxy starts");
    let database = fixture.base.url.rsplit('/').next().expect("the address names a database");
    let options = tidemill_store::Options::new(proxy.url(database), host_now);
    let store = Store::open(&options).await.expect("the store opens");
    let syncs = Syncs::new(Engine::new(store.clone(), Clock::Database, RetryPolicy::None), small());
    let (_stop, message) = watch::channel(false);
    let look = async |role: Role| {
        let identity = Identity { name: format!("{role:?}"), host: "here".to_owned(), labels: Vec::new() };
        match role {
            Role::Scheduler => syncs.schedule(identity, true, message.clone()).await,
            Role::Worker => {
                let options = PagerOptions { once: true, ..PagerOptions::default() };
                syncs.work_pages(identity, &options, message.clone()).await
            }
            Role::Consolidator => {
                let options = ConsolidatorOptions { once: true, ..ConsolidatorOptions::default() };
                syncs.consolidate(identity, &options, message.clone()).await
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
        assert_eq!(armed.fired(), 1, "{role:?} did not check");
        assert!(ended.is_err(), "{role:?}: {ended:?}");
        armed.disarm();
        assert_eq!(look(role).await.expect("it looks"), 0, "{role:?}");
    }
    store.close().await;
}

/// Statements of a page and of a batch; the empty one matches any statement.
const PLACES: [&str; 13] = [
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
    "INTO \"public\".\"items\"",
    "SET consolidated_to",
    "UPDATE public.run_metadata",
];

fn fault(dice: &mut Rng) -> Fault {
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

/// Runs syncs with connections cut at random statements until the time is over.
pub(crate) async fn simulation(subject: impl Into<Subject>, lasts: Duration) {
    let began = Instant::now();
    let first = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = first.unwrap_or_else(|| host_now().timestamp_micros().unsigned_abs());
    let fixture = open(subject, slow(300, 0), small()).await;
    // A lost answer uses up a delivery, and here that happens constantly.
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        change_queue(&fixture, queue, |settings| settings.deliveries_max = 90).await;
    }
    let (mut seeds, mut cuts) = (0, 0);
    while began.elapsed() < lasts {
        cuts += one(&fixture, first + seeds).await;
        seeds += 1;
    }
    println!("{seeds} seeds, {cuts} connections cut, {:.1} s", began.elapsed().as_secs_f64());
    assert!(cuts > 0, "no connection was cut");
}

/// Runs one sync; returns how many connections were cut.
async fn one(fixture: &SyncFixture, seed: u64) -> u32 {
    let mut dice = Rng::of(seed);
    for what in
        [ChangeKind::Price, ChangeKind::Media, ChangeKind::Vanish, ChangeKind::Return, ChangeKind::Add]
    {
        let count = u32::try_from(dice.below(20)).unwrap_or(0);
        fixture.supplier.handle.change(&Change::random(what, count, seed)).expect("records change");
    }
    let proxy = Proxy::in_front_of(&fixture.base.url).await.expect("the proxy starts");
    let database = fixture.base.url.rsplit('/').next().expect("the address names a database");
    let options = tidemill_store::Options::new(proxy.url(database), host_now);
    let store = Store::open(&options).await.expect("the store opens");
    let syncs = Syncs::new(Engine::new(store.clone(), Clock::Database, RetryPolicy::None), small());
    let faults: Vec<_> = (0..=dice.below(8)).map(|_| proxy.arm(fault(&mut dice))).collect();
    let mut roles = RoleSet::maintenance_only(&fixture.syncs);
    for role in [Role::Scheduler, Role::Worker, Role::Worker, Role::Consolidator, Role::Consolidator] {
        roles.start_on(&syncs, role);
    }
    let run = fixture.queue(true).await;
    succeeded(fixture, &run).await;
    fixture.check_equal().await;
    let alive = fixture.expected();
    let deleted = fixture.rows("deleted").await;
    assert!(deleted.keys().all(|record| !alive.contains_key(record)), "something alive is deleted");
    for fault in &faults {
        fault.disarm();
    }
    roles.stop().await;
    store.close().await;
    faults.iter().map(tidemill_testkit::proxy::Armed::fired).sum()
}
