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
/// How long somebody looks.
const LOOK: Duration = Duration::from_secs(6);
/// The shortest time between two updates, and so the time in which there is one at most.
const SPAN: Duration = Duration::from_millis(500);
/// What the page may do at most: so many updates a second; so many milliseconds of its processor in each span, so that
/// no task is longer; and timers so many milliseconds late. The latter two at the 95th percentile: the one counts what
/// the page does and nothing else, the other what a reader would notice on a machine that may be busy otherwise.
const UPDATES_PER_SECOND_MAX: f64 = 5.0;
const BUSY_MILLIS_MAX: f64 = 100.0;
const LATE_MILLIS_MAX: f64 = 200.0;

/// Notes every update of the page.
const UPDATES: &str = "
    new MutationObserver(() => seen.updates++)
      .observe(document.getElementById('lane'),
               { subtree: true, childList: true, characterData: true, attributes: true });";

/// Notes how late the timers of the page are.
const TIMERS: &str = "
    window.seen = { began: performance.now(), updates: 0, lags: [] };
    let due = performance.now() + 20;
    const tick = () => {
      seen.lags.push(Math.max(0, performance.now() - due));
      due = performance.now() + 20;
      setTimeout(tick, 20);
    };
    setTimeout(tick, 20);";

/// What was noted.
const SEEN: &str = "
    return { seconds: (performance.now() - seen.began) / 1000, updates: seen.updates, lags: seen.lags,
             nodes: document.querySelectorAll('*').length };";

/// The largest of all but one in twenty.
fn most(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() * 95 / 100).or(numbers.last()).copied().unwrap_or(0.0)
}

/// What the page did while somebody looked.
#[derive(Debug)]
struct Seen {
    updates_per_second: f64,
    busy_millis: f64,
    late_millis: f64,
    timers: usize,
    nodes: f64,
}

/// Looks at the page for a while.
async fn look(browser: &Browser) -> Seen {
    browser.measure().await;
    browser.run(&format!("{TIMERS}{UPDATES}")).await;
    let (began, mut busy) = (Instant::now(), Vec::new());
    let (mut last, mut before) = (began, browser.busy_millis().await);
    while began.elapsed() < LOOK {
        tokio::time::sleep(SPAN).await;
        let (now, sum) = (Instant::now(), browser.busy_millis().await);
        // Where the machine lets the test wait, several spans have passed.
        let spans = (now - last).as_secs_f64() / SPAN.as_secs_f64();
        busy.push((sum - before) / spans.max(1.0));
        (last, before) = (now, sum);
    }
    let seen = browser.run(SEEN).await;
    let number = |name: &str| seen[name].as_f64().unwrap_or_else(|| panic!("{name}: {seen}"));
    let numbers = |name: &str| {
        let all = seen[name].as_array().unwrap_or_else(|| panic!("{name}: {seen}"));
        all.iter().filter_map(Value::as_f64).collect::<Vec<f64>>()
    };
    let lags = numbers("lags");
    Seen {
        updates_per_second: number("updates") / number("seconds"),
        busy_millis: most(busy),
        timers: lags.len(),
        late_millis: most(lags),
        nodes: number("nodes"),
    }
}

/// How late the timers of an empty page are: this is the machine, and not the page.
async fn idle_late_millis(browser: &Browser) -> f64 {
    browser.go("about:blank").await;
    browser.run(TIMERS).await;
    tokio::time::sleep(LOOK / 2).await;
    let seen = browser.run(SEEN).await;
    let lags = seen["lags"].as_array().unwrap_or_else(|| panic!("{seen}"));
    most(lags.iter().filter_map(Value::as_f64).collect())
}

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
    let browser = Browser::open(&Wish { alone: true, ..Wish::default() }).await;
    let (tell, stop) = watch::channel(false);
    let watched = async {
        browser.go(&house.url(&format!("/runs/{run}"))).await;
        browser.sees("#live", "Live").await;
        browser.sees("#pace", "Stones per second").await;
        let nodes = browser.run("return document.querySelectorAll('*').length").await;
        let read = "return document.querySelector('#sync .tile:nth-child(2) b').textContent";
        let before = browser.run(read).await;
        let seen = look(&browser).await;
        assert_ne!(browser.run(read).await, before, "the page moves on");
        let idle = idle_late_millis(&browser).await;
        let _ = tell.send(true);
        (nodes.as_f64().expect("a number"), seen, idle)
    };
    let ((nodes, seen, idle), pace) = tokio::join!(watched, store_pages(&mill, &run, stop));
    println!("{pace:.0} pages a second: {seen:?}; an empty page is {idle:.0} ms late");
    // A busy machine stores fewer; there are many for each update all the same.
    assert!(pace > UPDATES_PER_SECOND_MAX * 10.0, "only {pace:.0} pages a second were stored");
    let updates = seen.updates_per_second;
    assert!(updates > 0.3 && updates <= UPDATES_PER_SECOND_MAX, "{seen:?}");
    assert!(seen.busy_millis > 0.0 && seen.busy_millis <= BUSY_MILLIS_MAX, "{seen:?}");
    assert!(seen.timers > 20 && seen.late_millis <= LATE_MILLIS_MAX + idle * 2.0, "{seen:?}, {idle}");
    assert!(seen.nodes < nodes * 1.5 + 3_000.0, "the page grows, from {nodes} nodes: {seen:?}");
    browser.is_content().await;
}
