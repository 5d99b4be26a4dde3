//! Live updates of an open page.

use crate::driver::{Browser, BrowserOptions};
use crate::graph_fixture::{FakeAgent, submit};
use crate::sample_data::{claim, event};
use crate::server::ConsoleServer;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::event::Level;
use tidemill_core::project::FlagName;
use tidemill_core::run::QueueRun;
use tidemill_core::task::job_id;
use tidemill_store::ListPage;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selecting_an_option_has_no_effect_before_submit() {
    let server = ConsoleServer::without_tokens().await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url("/flags")).await;
    browser.click("#site select[name=flag] option[value=reboot]").await;
    browser.click("#site select[name=flag] option[value=maintenance]").await;
    browser.click("#site select[name=lasts] option[value='1h']").await;
    browser.type_text("#site input[name=note]", "a new kernel").await;
    assert_eq!(browser.text("#flags").await, "No flags are set.");
    assert!(server.fixture.store.flags().await.expect("flags").is_empty(), "the form was not submitted yet");
    browser.click("#site button.main").await;
    browser.wait_for_text(".flash", "The flag was set.").await;
    let flags = server.fixture.store.flags().await.expect("flags");
    let set: Vec<_> = flags.iter().map(|flag| (flag.flag, flag.note.as_deref())).collect();
    assert_eq!(set, [(FlagName::Maintenance, Some("a new kernel"))]);
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn sync_planned_while_page_is_open_shows_partitions() {
    let fixture = SyncFixture::open(Kind::Sqlite, 2_000).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/feeds/{FEED}"))).await;
    browser.click(".head .acts button.main").await;
    browser.wait_for_text(".flash", "The sync was queued. This is its run.").await;
    browser.wait_for_text("#head .state", "queued").await;
    browser.wait_for_text("#live", "Live").await;
    browser.run("window.notReloaded = true").await;
    let roles = fixture.roles();
    browser.wait_for_text("article.partition", "completed").await;
    browser.wait_for_text("#sync", "completed").await;
    assert_eq!(browser.run("return window.notReloaded").await, json!(true), "the page was not reloaded");
    browser.assert_no_errors().await;
    roles.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_out_user_sees_a_permanent_notice() {
    let server = ConsoleServer::with_tokens().await;
    let token = server.token(Role::Viewer, None).await;
    let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/sign-in?next=/runs/{run}"))).await;
    browser.type_text("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.wait_for_text("#live", "Live").await;
    // Speeds up the timers of the page twentyfold, to shorten the wait below.
    browser
        .run(
            "window.said = []; const live = document.getElementById('live'); \
             new MutationObserver(() => said.push(live.textContent)) \
               .observe(live, { childList: true, characterData: true, subtree: true }); \
             const slow = window.setTimeout; window.setTimeout = (act, after) => slow(act, after / 20);",
        )
        .await;
    let tokens = server
        .fixture
        .store
        .tokens(ListPage { project: None, before: None, limit: 9 })
        .await
        .expect("tokens");
    server.engine().revoke_token(tokens[0].token_id, None, "test").await.expect("the token is revoked");
    browser.wait_for_text("#live", "Signed out; reload the page").await;
    // Long enough for ten reconnects of the stream.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let said = browser.run("return said").await;
    let last = said.as_array().and_then(|said| said.last()).cloned();
    assert_eq!(last, Some(json!("Signed out; reload the page")), "{said}");
    assert_eq!(browser.console_errors(&["401"]).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_output_appears_live_and_is_replaced_by_next_attempt() {
    let server = ConsoleServer::without_tokens().await;
    let run = submit(&server, "version: 1\njobs:\n  flaky:\n    run: work\n    retries: 1\n").await;
    let mut robot = FakeAgent::register(&server).await;
    let first = robot.orders().await.remove(0);
    robot.begin(&first).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/jobs/{}", job_id(&run, "flaky")))).await;
    browser.wait_for_text("#log", "There is no output yet.").await;
    browser.wait_for_text("#live", "Live").await;
    robot.write(&first, 0, &[("stdout", "output of attempt one")]).await;
    browser.wait_for_text("#log ol", "output of attempt one").await;
    browser.wait_for_no_text("#log", "There is no output yet.").await;
    robot.end(&first, 1, None, Vec::new()).await;
    // The retry starts after a short back-off.
    let second = loop {
        if let Some(order) = robot.orders().await.pop() {
            break order;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    robot.begin(&second).await;
    browser.wait_for_text("#log header", "of attempt 2").await;
    browser.wait_for_no_text("#log ol", "output of attempt one").await;
    robot.write(&second, 0, &[("stdout", "output of attempt two"), ("stdout", "last line")]).await;
    browser.wait_for_text("#log ol li:last-child", "last line").await;
    let lines = browser.run("return document.querySelectorAll('#log ol > li').length").await;
    assert_eq!(lines, json!(2), "each line is shown once");
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filtered_event_list_shows_only_matching_new_events() {
    let server = ConsoleServer::without_tokens().await;
    let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&server, &run, "worker-1").await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/runs/{run}?level=warn"))).await;
    browser.wait_for_text("#record", "No matching event.").await;
    browser.wait_for_text("#live", "Live").await;
    let events = vec![
        event(Level::Info, "info message", json!({})),
        event(Level::Warn, "warning message", json!({})),
        event(Level::Debug, "debug message", json!({})),
        event(Level::Error, "error message", json!({})),
    ];
    server.engine().append(&run, events, &holder).await.expect("events");
    browser.wait_for_text("ol.events", "error message").await;
    browser.wait_for_no_text("#record", "No matching event.").await;
    let shown = browser
        .run("return [...document.querySelectorAll('ol.events .message')].map((one) => one.textContent)")
        .await;
    assert_eq!(shown, json!(["warning message", "error message"]));
    browser.assert_no_errors().await;
}
