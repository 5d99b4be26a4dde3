//! Tests with a real browser.

use crate::driver::{Browser, BrowserOptions};
use crate::sample_data::{HOSTILE_NAME, claim, event, finish, paths, populate};
use crate::screen_sizes::fits;
use crate::server::ConsoleServer;
use serde_json::json;
use tidemill_core::access::Role;
use tidemill_core::event::Level;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_signs_in_and_out() {
    let server = ConsoleServer::with_tokens().await;
    let token = server.token(Role::Operator, None).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url("/runs?status=failed")).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.type_text("input[name=token]", "tm_wrong").await;
    browser.click("button.main").await;
    browser.wait_for_text("[role=alert]", "Unknown token.").await;
    assert_eq!(browser.console_errors(&["401"]).await, Vec::<String>::new());
    browser.type_text("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.wait_for_text("h1", "Runs").await;
    assert!(browser.url().await.ends_with("/runs?status=failed"), "{}", browser.url().await);
    browser.assert_no_errors().await;
    browser.click(".who button").await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.go(&server.url("/")).await;
    browser.wait_for_text("h1", "Sign in").await;
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_page_follows_run_from_queued_to_success() {
    let server = ConsoleServer::without_tokens().await;
    let engine = server.engine();
    let run = engine.queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.wait_for_text("#head .state", "queued").await;
    browser.wait_for_text("#live", "Live").await;
    // A reload of the page would lose this variable, the typed text and the open details.
    browser.run("window.notReloaded = true; document.querySelector('#head details.cli').open = true").await;
    browser.type_text("input[name=find]", "half a wo").await;
    let holder = claim(&server, &run, "worker-1").await;
    browser.wait_for_text("#head .state", "claimed").await;
    engine
        .append(&run, vec![event(Level::Warn, HOSTILE_NAME, json!({"a": 1}))], &holder)
        .await
        .expect("an event");
    browser.wait_for_text("#head .state", "running").await;
    browser.wait_for_text("ol.events", "alert(1)").await;
    finish(&server, &run, &holder, FinalStatus::Success, json!({})).await;
    browser.wait_for_text("#head .state", "success").await;
    browser.wait_for_text("ol.events li:last-child", "Run succeeded").await;
    let state = browser
        .run(
            "return [window.notReloaded, document.querySelector('input[name=find]').value, \
              document.activeElement.name, document.querySelector('#head details.cli').open]",
        )
        .await;
    assert_eq!(state, json!([true, "half a wo", "find", true]));
    let twice = browser
        .run(
            "const seen = [...document.querySelectorAll('ol.events > li')].map((row) => row.dataset.key); \
              return seen.length === new Set(seen).size && seen.length >= 5",
        )
        .await;
    assert_eq!(twice, json!(true), "each event is listed once");
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_run_is_cancelled() {
    let server = ConsoleServer::with_tokens().await;
    let token = server.token(Role::Operator, None).await;
    let run = server.engine().queue(request()).await.expect("a run").run_id;
    let holder = claim(&server, &run, "worker-1").await;
    server.engine().start(&run, &holder).await.expect("the run starts");
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/sign-in?next=/runs/{run}"))).await;
    browser.type_text("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.wait_for_text("#head .state", "running").await;
    browser.click("details.drop summary").await;
    browser.type_text("input[name=reason]", "too <late>").await;
    browser.click("button.risk").await;
    browser.wait_for_text(".flash", "The worker was asked to stop the run.").await;
    browser.wait_for_text("#head .note", "has not confirmed yet").await;
    assert!(server.engine().run(&run).await.expect("a run").cancel_requested_at.is_some());
    finish(&server, &run, &holder, FinalStatus::Cancelled, json!({})).await;
    browser.wait_for_text("#head .state", "cancelled").await;
    browser.click("#head form button.main").await;
    browser.wait_for_text(".flash", "A retry was queued. This is its page.").await;
    browser.wait_for_text("#head .state", "queued").await;
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_list_is_live_and_cancels_several_runs() {
    let server = ConsoleServer::without_tokens().await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url("/runs")).await;
    browser.wait_for_text("#runs", "There are no runs yet").await;
    let first = server.engine().queue(request()).await.expect("a run").run_id;
    browser.wait_for_text("#runs tbody tr td .state", "queued").await;
    browser.click(&format!("input[value='{first}']")).await;
    let second = server.engine().queue(request()).await.expect("a run").run_id;
    browser.wait_for_text("#runs tbody tr:first-child a", &second.as_str()[..17]).await;
    let ticked = browser
        .run("return [...document.querySelectorAll('input[name=run]')].map((box) => box.checked)")
        .await;
    assert_eq!(ticked, json!([false, true]), "checked boxes stay checked when rows are added");
    browser.click("button[value=cancel]").await;
    browser.wait_for_text(".flash", "1 of 1 cancelled or asked to stop.").await;
    assert_eq!(server.engine().run(&first).await.expect("a run").status, RunState::Cancelled);
    assert_eq!(server.engine().run(&second).await.expect("a run").status, RunState::Queued);
    // With several runs, a confirmation page comes first.
    browser.click("input[data-all=run]").await;
    browser.click("button[value=cancel]").await;
    browser.wait_for_text("h1", "Cancel 2 runs?").await;
    browser.wait_for_text("#confirm", "1 is waiting and ends at once.").await;
    assert_eq!(server.engine().run(&second).await.expect("a run").status, RunState::Queued);
    browser.click("#confirm button.risk").await;
    browser.wait_for_text(".flash", "1 of 2 cancelled or asked to stop.").await;
    assert_eq!(server.engine().run(&second).await.expect("a run").status, RunState::Cancelled);
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_is_replayed() {
    let server = ConsoleServer::without_tokens().await;
    populate(&server).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url("/")).await;
    browser.wait_for_text("#queues", "work-items").await;
    browser.click("#queues a[href='/queues/work-items']").await;
    browser.wait_for_text("#dead", "letter-1").await;
    browser.wait_for_text("#dead", "permanent").await;
    browser.click("#dead td.acts button").await;
    browser.wait_for_text(".flash", "1 of 1 dead letters were replayed.").await;
    browser.wait_for_text("#dead", "There are no dead letters.").await;
    browser.wait_for_text("#next", "letter-1").await;
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_work_without_scripts() {
    let server = ConsoleServer::with_tokens().await;
    let data = populate(&server).await;
    let token = server.token(Role::Operator, None).await;
    let browser = Browser::open(&BrowserOptions { script: false, ..BrowserOptions::default() }).await;
    browser.go(&server.url("/")).await;
    browser.type_text("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.wait_for_text("#attention", "failed").await;
    assert_eq!(browser.text("#live").await, "", "the script did not run");
    browser.click("#attention form button").await;
    browser.wait_for_text(".flash", "A retry was queued.").await;
    browser.go(&server.url("/runs")).await;
    browser.type_text("input[name=find]", data.failed.as_str()).await;
    browser.click(".filters button.main").await;
    browser.wait_for_text("#runs tbody", &data.failed.as_str()[..17]).await;
    assert!(browser.url().await.contains(&format!("find={}", data.failed)), "{}", browser.url().await);
    browser.go(&server.url(&format!("/runs/{}?level=warn", data.failed))).await;
    browser.wait_for_text("ol.events", "alert(1)").await;
    browser.click("ol.events details summary").await;
    browser.go(&server.url(&format!("/runs/{}", data.queued))).await;
    browser.click("details.drop summary").await;
    browser.click("button.risk").await;
    browser.wait_for_text("#head .state", "cancelled").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restart_is_noticed_and_missed_events_are_shown() {
    let mut server = ConsoleServer::without_tokens().await;
    let run = server.engine().queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.wait_for_text("#live", "Live").await;
    server.stop().await;
    browser.wait_for_text("#live", "No response; retrying").await;
    let holder = claim(&server, &run, "worker-1").await;
    server
        .engine()
        .append(&run, vec![event(Level::Info, "during the downtime", json!({}))], &holder)
        .await
        .expect("an event");
    finish(&server, &run, &holder, FinalStatus::Success, json!({})).await;
    server.start().await;
    browser.wait_for_text("#head .state", "success").await;
    browser.wait_for_text("ol.events", "during the downtime").await;
    browser.wait_for_text("#restarted", "The server was restarted.").await;
    browser.wait_for_text("#live", "Live").await;
    let refused =
        ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"];
    assert_eq!(browser.console_errors(&refused).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_list_of_busy_run_is_bounded() {
    let server = ConsoleServer::without_tokens().await;
    let run = server.engine().queue(request()).await.expect("a run").run_id;
    let holder = claim(&server, &run, "worker-1").await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.wait_for_text("#live", "Live").await;
    for batch in 0..30 {
        let lines =
            (0..100).map(|line| event(Level::Info, &format!("line {}", batch * 100 + line), json!({})));
        server.engine().append(&run, lines.collect(), &holder).await.expect("events");
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    browser.wait_for_text("ol.events li:last-child", "line 2999").await;
    let rows = browser.run("return document.querySelectorAll('ol.events > li').length").await.as_i64();
    assert!(rows.is_some_and(|rows| (100..=1_000).contains(&rows)), "{rows:?}");
    let requests = browser
        .run(
            "const all = performance.getEntriesByType('resource'); \
              return all.filter((one) => one.initiatorType === 'fetch').length",
        )
        .await;
    assert!(requests.as_i64().is_some_and(|requests| requests < 60), "the page sent {requests} requests");
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tabs_are_each_live_when_visible() {
    let server = ConsoleServer::without_tokens().await;
    let run = server.engine().queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&BrowserOptions::default()).await;
    let mut tabs = Vec::new();
    for _ in 0..10 {
        let tab = browser.another_tab().await;
        // Browsers limit the connections per server: streams of hidden tabs would block the next tab from loading.
        browser.go(&server.url(&format!("/runs/{run}"))).await;
        browser.wait_for_text("#live", "Live").await;
        tabs.push(tab);
    }
    let holder = claim(&server, &run, "worker-1").await;
    finish(&server, &run, &holder, FinalStatus::Success, json!({})).await;
    for tab in [&tabs[0], &tabs[9]] {
        browser.switch_to(tab).await;
        browser.wait_for_text("#head .state", "success").await;
    }
    browser.assert_no_errors().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_fit_wide_and_narrow_screens() {
    let server = ConsoleServer::without_tokens().await;
    let data = populate(&server).await;
    let mut pages = paths(&data);
    pages.retain(|path| !path.contains("/tail"));
    pages.extend(["/tokens", "/audit", "/sign-in"].map(str::to_owned));
    let browser = Browser::open(&BrowserOptions::default()).await;
    for path in &pages {
        browser.go(&server.url(path)).await;
        let mut name = path.trim_matches('/').to_owned();
        for (run, state) in [(&data.failed, "failed"), (&data.running, "running"), (&data.queued, "queued")] {
            name = name.replace(run.as_str(), state);
        }
        let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        fits(&browser, if name.is_empty() { "overview" } else { &name }).await;
    }
}
