//! What a page says while it is open: it must stay true as things change, and do nothing by itself.

use crate::driver::{Browser, Wish};
use crate::furnish::{claim, event};
use crate::house::House;
use crate::site::{Robot, submit};
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::event::Level;
use tidemill_core::project::FlagName;
use tidemill_core::run::QueueRun;
use tidemill_core::task::job_id;
use tidemill_store::Slice;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choosing_an_option_does_nothing_until_the_button_is_pressed() {
    let house = House::open().await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url("/flags")).await;
    browser.click("#site select[name=flag] option[value=reboot]").await;
    browser.click("#site select[name=flag] option[value=maintenance]").await;
    browser.click("#site select[name=lasts] option[value='1h']").await;
    browser.write("#site input[name=note]", "a new kernel").await;
    assert_eq!(browser.text("#flags").await, "Nothing is held.");
    assert!(house.stage.store.flags().await.expect("flags").is_empty(), "nothing was pressed yet");
    browser.click("#site button.main").await;
    browser.sees(".flash", "The flag is on from now on.").await;
    let flags = house.stage.store.flags().await.expect("flags");
    let set: Vec<_> = flags.iter().map(|flag| (flag.flag, flag.note.as_deref())).collect();
    assert_eq!(set, [(FlagName::Maintenance, Some("a new kernel"))]);
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_sync_that_is_planned_while_somebody_looks_shows_its_partitions() {
    let mill = Mill::open(Kind::Sqlite, 2_000).await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/feeds/{FEED}"))).await;
    browser.click(".head .acts button.main").await;
    browser.sees(".flash", "The sync was queued. This is its run.").await;
    browser.sees("#head .state", "queued").await;
    browser.sees("#live", "Live").await;
    browser.run("window.kept = true").await;
    let roles = mill.roles();
    browser.sees("article.partition", "completed").await;
    browser.sees("#sync", "completed").await;
    assert_eq!(browser.run("return window.kept").await, json!(true), "nobody loaded the page again");
    browser.is_content().await;
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_signed_out_is_told_so_and_stays_told() {
    let house = House::guarded().await;
    let token = house.token(Role::Viewer, None).await;
    let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/sign-in?next=/runs/{run}"))).await;
    browser.write("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.sees("#live", "Live").await;
    // From now on the timers of the page are twenty times as quick, so that nobody has to wait for what does not come.
    browser
        .run(
            "window.said = []; const live = document.getElementById('live'); \
             new MutationObserver(() => said.push(live.textContent)) \
               .observe(live, { childList: true, characterData: true, subtree: true }); \
             const slow = window.setTimeout; window.setTimeout = (act, after) => slow(act, after / 20);",
        )
        .await;
    let tokens =
        house.stage.store.tokens(Slice { project: None, before: None, limit: 9 }).await.expect("tokens");
    house.engine().revoke_token(tokens[0].token_id, None, "test").await.expect("it is taken back");
    browser.sees("#live", "You are signed out: reload the page").await;
    // Long enough for the stream to be opened ten times more, if anybody tried.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let said = browser.run("return said").await;
    let last = said.as_array().and_then(|said| said.last()).cloned();
    assert_eq!(last, Some(json!("You are signed out: reload the page")), "{said}");
    assert_eq!(browser.complaints(&["401"]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_wrote_nothing_until_it_writes_and_its_next_try_takes_the_place_of_the_last() {
    let house = House::open().await;
    let run = submit(&house, "version: 1\njobs:\n  flaky:\n    run: work\n    retries: 1\n").await;
    let mut robot = Robot::register(&house).await;
    let first = robot.orders().await.remove(0);
    robot.begin(&first).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/jobs/{}", job_id(&run, "flaky")))).await;
    browser.sees("#log", "It wrote nothing yet.").await;
    browser.sees("#live", "Live").await;
    robot.write(&first, 0, &[("stdout", "the first try speaks")]).await;
    browser.sees("#log ol", "the first try speaks").await;
    browser.lacks("#log", "It wrote nothing yet.").await;
    robot.end(&first, 1, None, Vec::new()).await;
    // The next try comes after a short wait.
    let second = loop {
        if let Some(order) = robot.orders().await.pop() {
            break order;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    robot.begin(&second).await;
    browser.sees("#log header", "of try 2").await;
    browser.lacks("#log ol", "the first try speaks").await;
    robot.write(&second, 0, &[("stdout", "the second try speaks"), ("stdout", "twice")]).await;
    browser.sees("#log ol li:last-child", "twice").await;
    let lines = browser.run("return document.querySelectorAll('#log ol > li').length").await;
    assert_eq!(lines, json!(2), "each line is there once");
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_narrowed_shows_what_fits_as_it_comes_and_nothing_else() {
    let house = House::open().await;
    let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&house, &run, "worker-1").await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/runs/{run}?level=warn"))).await;
    browser.sees("#record", "No such event in the record.").await;
    browser.sees("#live", "Live").await;
    let events = vec![
        event(Level::Info, "only a word", json!({})),
        event(Level::Warn, "it is late", json!({})),
        event(Level::Debug, "less than a word", json!({})),
        event(Level::Error, "it is too late", json!({})),
    ];
    house.engine().append(&run, events, &holder).await.expect("events");
    browser.sees("ol.events", "it is too late").await;
    browser.lacks("#record", "No such event in the record.").await;
    let shown = browser
        .run("return [...document.querySelectorAll('ol.events .message')].map((one) => one.textContent)")
        .await;
    assert_eq!(shown, json!(["it is late", "it is too late"]));
    browser.is_content().await;
}
