//! A sync that stores hundreds of pages a second before ones eyes: its page says so, and stays calm and smooth.

use crate::driver::{Browser, Wish};
use crate::house::House;
use serde_json::Value;
use std::time::Duration;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::event::{Level, NewEvent};
use tidemill_engine::Identity;
use tidemill_engine::sync::SyncSettings;
use tidemill_store::Holder;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, quick};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// What is read at once, and how often each moves: 30 partitions every 60 ms are 500 pages a second.
const PARTITIONS: usize = 30;
const STEP: Duration = Duration::from_millis(60);
const PAGES_PER_SECOND: f64 = 500.0;
/// How long somebody looks.
const LOOK: Duration = Duration::from_secs(10);
/// What the page may do at most: so many updates a second, and tasks of so many milliseconds at the 95th percentile,
/// with timers no later than that.
const UPDATES_PER_SECOND_MAX: f64 = 5.0;
const TASK_MILLIS_MAX: f64 = 100.0;

/// Notes every update of the page, how long its tasks take, and how late its timers are.
const WATCH: &str = "
    window.seen = { began: performance.now(), updates: [], tasks: [], lags: [] };
    new MutationObserver(() => seen.updates.push(performance.now()))
      .observe(document.getElementById('lane'),
               { subtree: true, childList: true, characterData: true, attributes: true });
    new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((task) => task.duration)))
      .observe({ type: 'longtask' });
    let due = performance.now() + 20;
    const tick = () => {
      seen.lags.push(Math.max(0, performance.now() - due));
      due = performance.now() + 20;
      setTimeout(tick, 20);
    };
    setTimeout(tick, 20);";

/// What was noted. A task that is shorter than 50 ms is not told of, so that each update counts as one of 50.
const SEEN: &str = "
    const most = (numbers, percent) => {
      const sorted = [...numbers].sort((one, other) => one - other);
      return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * percent / 100))] : 0;
    };
    const tasks = [...seen.updates.map(() => 50), ...seen.tasks];
    return {
      seconds: (performance.now() - seen.began) / 1000,
      updates: seen.updates.length,
      task: most(tasks, 95), longest: most(tasks, 100),
      lag: most(seen.lags, 95), latest: most(seen.lags, 100), timers: seen.lags.length,
      nodes: document.querySelectorAll('*').length,
    };";

/// A sync that is planned, with nobody who reads it.
async fn planned() -> (Mill, RunId) {
    let settings = SyncSettings { unlimited: true, partition_target: 300, partition_min: 100, ..quick() };
    let mut config = Mill::config();
    config.stones = 12_000;
    let mill = Mill::with(Kind::Sqlite, config, settings).await;
    let run = mill.queue(true).await;
    let who = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let (_told, stop) = watch::channel(false);
    assert_eq!(mill.syncs.schedule(who, true, stop).await.expect("it is planned"), 1);
    let status = mill.syncs.status(run.as_str()).await.expect("a sync");
    assert_eq!(status.partitions.len(), PARTITIONS);
    (mill, run)
}

/// Stores pages, as far as the tables tell, until told to stop; how many in a second.
async fn store_pages(mill: &Mill, run: &RunId, stop: watch::Receiver<bool>) -> f64 {
    let sync = mill.record(run).await.run_id;
    let now = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000";
    let receive = format!("UPDATE partition_progress SET state = 'in_progress' WHERE run_id = '{sync}'");
    let page = format!(
        "UPDATE partition_progress SET state = 'fetching_pages', next_offset = next_offset + 1, \
         fetched = fetched + 2, stored = stored + 2, first_page_at = coalesce(first_page_at, {now}), \
         updated_at = {now} WHERE run_id = '{sync}'"
    );
    let ledger = format!(
        "INSERT INTO pages (run_id, partition_id, page_offset, pass, fetched, stored, changed, page_hash, stone_ids, \
         stored_at) SELECT run_id, partition_id, next_offset, 1, 2, 2, 2, x'00', '[]', {now} \
         FROM partition_progress WHERE run_id = '{sync}'"
    );
    let plain = &mill.stage.plain;
    plain.execute(&receive).await.expect("the partitions begin");
    let (began, mut pages) = (Instant::now(), 0_u32);
    let mut every = interval(STEP);
    // A machine that is busy for a moment makes up for it: the pace is what is asked for.
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !*stop.borrow() {
        every.tick().await;
        pages += u32::try_from(plain.execute(&page).await.expect("pages are stored")).expect("a number");
        plain.execute(&ledger).await.expect("pages are noted");
        // An event is what a page listens to: many of them must not make it ask more often.
        let said = NewEvent::new(Level::Info, format!("{pages} pages are stored"));
        mill.stage
            .store
            .append_events(run.clone(), vec![said], Holder::default(), None)
            .await
            .expect("an event");
    }
    f64::from(pages) / began.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_sync_of_thirty_partitions_at_five_hundred_pages_a_second_is_calm_and_smooth() {
    let (mill, run) = planned().await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    let browser = Browser::open(&Wish::default()).await;
    let (tell, stop) = watch::channel(false);
    let watched = async {
        browser.go(&house.url(&format!("/runs/{run}"))).await;
        browser.sees("#live", "Live").await;
        browser.sees("#pace", "Stones per second").await;
        let nodes = browser.run("return document.querySelectorAll('*').length").await;
        let read = "return document.querySelector('#sync .tile:nth-child(2) b').textContent";
        let before = browser.run(read).await;
        browser.run(WATCH).await;
        // What is measured is what happens within a time.
        tokio::time::sleep(LOOK).await;
        let seen = browser.run(SEEN).await;
        assert_ne!(browser.run(read).await, before, "the page moves on");
        let _ = tell.send(true);
        (nodes, seen)
    };
    let ((nodes, seen), pace) = tokio::join!(watched, store_pages(&mill, &run, stop));
    println!("{pace:.0} pages a second: {seen}");
    check(&seen, nodes.as_f64().expect("a number"));
    assert!(pace > PAGES_PER_SECOND * 0.9, "only {pace:.0} pages a second were stored");
    browser.is_content().await;
}

fn check(seen: &Value, nodes: f64) {
    let number = |name: &str| seen[name].as_f64().unwrap_or_else(|| panic!("{name}: {seen}"));
    let updates = number("updates") / number("seconds");
    assert!(updates <= UPDATES_PER_SECOND_MAX, "{updates:.1} updates a second: {seen}");
    assert!(updates > 0.3, "{updates:.1} updates a second: {seen}");
    assert!(number("task") <= TASK_MILLIS_MAX, "tasks take too long: {seen}");
    assert!(number("timers") > 20.0 && number("lag") <= TASK_MILLIS_MAX, "timers are late: {seen}");
    assert!(number("nodes") < nodes * 1.5 + 3_000.0, "the page grows, from {nodes} nodes: {seen}");
}
