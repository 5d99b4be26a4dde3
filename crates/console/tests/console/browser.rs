//! People at a real browser.

use crate::driver::{Browser, Wish};
use crate::furnish::{NASTY_NAME, claim, event, finish, furnish, paths};
use crate::house::House;
use crate::sizes::fits;
use serde_json::json;
use tidemill_core::access::Role;
use tidemill_core::event::Level;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_signs_in_and_out() {
    let house = House::guarded().await;
    let token = house.token(Role::Operator, None).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url("/runs?status=failed")).await;
    browser.sees("h1", "Sign in").await;
    browser.write("input[name=token]", "tm_wrong").await;
    browser.click("button.main").await;
    browser.sees("[role=alert]", "Nobody knows this token.").await;
    assert_eq!(browser.complaints(&["401"]).await, Vec::<String>::new());
    browser.write("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.sees("h1", "Runs").await;
    assert!(browser.url().await.ends_with("/runs?status=failed"), "{}", browser.url().await);
    browser.is_content().await;
    browser.click(".who button").await;
    browser.sees("h1", "Sign in").await;
    browser.go(&house.url("/")).await;
    browser.sees("h1", "Sign in").await;
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_from_queued_to_success_before_ones_eyes() {
    let house = House::open().await;
    let engine = house.engine();
    let run = engine.queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.sees("#head .state", "queued").await;
    browser.sees("#live", "Live").await;
    // A page that was loaded again would have forgotten this, what was typed and what was opened.
    browser.run("window.kept = true; document.querySelector('#head details.cli').open = true").await;
    browser.write("input[name=find]", "half a wo").await;
    let holder = claim(&house, &run, "worker-1").await;
    browser.sees("#head .state", "claimed").await;
    engine
        .append(&run, vec![event(Level::Warn, NASTY_NAME, json!({"a": 1}))], &holder)
        .await
        .expect("an event");
    browser.sees("#head .state", "running").await;
    browser.sees("ol.events", "alert(1)").await;
    finish(&house, &run, &holder, FinalStatus::Success, json!({})).await;
    browser.sees("#head .state", "success").await;
    browser.sees("ol.events li:last-child", "Run succeeded").await;
    let kept = browser
        .run(
            "return [window.kept, document.querySelector('input[name=find]').value, \
              document.activeElement.name, document.querySelector('#head details.cli').open]",
        )
        .await;
    assert_eq!(kept, json!([true, "half a wo", "find", true]));
    let twice = browser
        .run(
            "const seen = [...document.querySelectorAll('ol.events > li')].map((row) => row.dataset.key); \
              return seen.length === new Set(seen).size && seen.length >= 5",
        )
        .await;
    assert_eq!(twice, json!(true), "each event is there once");
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_run_is_cancelled() {
    let house = House::guarded().await;
    let token = house.token(Role::Operator, None).await;
    let run = house.engine().queue(request()).await.expect("a run").run_id;
    let holder = claim(&house, &run, "worker-1").await;
    house.engine().start(&run, &holder).await.expect("it starts");
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/sign-in?next=/runs/{run}"))).await;
    browser.write("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.sees("#head .state", "running").await;
    browser.click("details.drop summary").await;
    browser.write("input[name=reason]", "too <late>").await;
    browser.click("button.risk").await;
    browser.sees(".flash", "The worker was asked to stop the run.").await;
    browser.sees("#head .note", "has not confirmed yet").await;
    assert!(house.engine().run(&run).await.expect("a run").cancel_requested_at.is_some());
    finish(&house, &run, &holder, FinalStatus::Cancelled, json!({})).await;
    browser.sees("#head .state", "cancelled").await;
    browser.click("#head form button.main").await;
    browser.sees(".flash", "Another try was queued. This is it.").await;
    browser.sees("#head .state", "queued").await;
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_the_list_are_live_and_several_are_cancelled_at_once() {
    let house = House::open().await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url("/runs")).await;
    browser.sees("#runs", "No run was queued yet").await;
    let first = house.engine().queue(request()).await.expect("a run").run_id;
    browser.sees("#runs tbody tr td .state", "queued").await;
    browser.click(&format!("input[value='{first}']")).await;
    let second = house.engine().queue(request()).await.expect("a run").run_id;
    browser.sees("#runs tbody tr:first-child a", &second.as_str()[..17]).await;
    let ticked = browser
        .run("return [...document.querySelectorAll('input[name=run]')].map((box) => box.checked)")
        .await;
    assert_eq!(ticked, json!([false, true]), "what was ticked stays ticked as rows come");
    browser.click("button[value=cancel]").await;
    browser.sees(".flash", "1 of 1 cancelled or asked to stop.").await;
    assert_eq!(house.engine().run(&first).await.expect("a run").status, RunState::Cancelled);
    assert_eq!(house.engine().run(&second).await.expect("a run").status, RunState::Queued);
    // Where there are several, what will happen is said first.
    browser.click("input[data-all=run]").await;
    browser.click("button[value=cancel]").await;
    browser.sees("h1", "Cancel 2 runs?").await;
    browser.sees("#confirm", "1 waits, and ends at once.").await;
    assert_eq!(house.engine().run(&second).await.expect("a run").status, RunState::Queued);
    browser.click("#confirm button.risk").await;
    browser.sees(".flash", "1 of 2 cancelled or asked to stop.").await;
    assert_eq!(house.engine().run(&second).await.expect("a run").status, RunState::Cancelled);
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_replayed() {
    let house = House::open().await;
    furnish(&house).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url("/")).await;
    browser.sees("#queues", "work-items").await;
    browser.click("#queues a[href='/queues/work-items']").await;
    browser.sees("#dead", "letter-1").await;
    browser.sees("#dead", "permanent").await;
    browser.click("#dead td.acts button").await;
    browser.sees(".flash", "1 of 1 dead letters were sent again.").await;
    browser.sees("#dead", "nothing was given up").await;
    browser.sees("#next", "letter-1").await;
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_without_script() {
    let house = House::guarded().await;
    let things = furnish(&house).await;
    let token = house.token(Role::Operator, None).await;
    let browser = Browser::open(&Wish { script: false, ..Wish::default() }).await;
    browser.go(&house.url("/")).await;
    browser.write("input[name=token]", &token).await;
    browser.click("button.main").await;
    browser.sees("#attention", "failed").await;
    assert_eq!(browser.text("#live").await, "", "the script did not run");
    browser.click("#attention form button").await;
    browser.sees(".flash", "Another try was queued.").await;
    browser.go(&house.url("/runs")).await;
    browser.write("input[name=find]", things.failed.as_str()).await;
    browser.click(".filters button.main").await;
    browser.sees("#runs tbody", &things.failed.as_str()[..17]).await;
    assert!(browser.url().await.contains(&format!("find={}", things.failed)), "{}", browser.url().await);
    browser.go(&house.url(&format!("/runs/{}?level=warn", things.failed))).await;
    browser.sees("ol.events", "alert(1)").await;
    browser.click("ol.events details summary").await;
    browser.go(&house.url(&format!("/runs/{}", things.queued))).await;
    browser.click("details.drop summary").await;
    browser.click("button.risk").await;
    browser.sees("#head .state", "cancelled").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_is_noticed_and_what_was_missed_is_shown() {
    let mut house = House::open().await;
    let run = house.engine().queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.sees("#live", "Live").await;
    house.stop().await;
    browser.sees("#live", "No answer; trying again").await;
    let holder = claim(&house, &run, "worker-1").await;
    house
        .engine()
        .append(&run, vec![event(Level::Info, "while nobody served", json!({}))], &holder)
        .await
        .expect("an event");
    finish(&house, &run, &holder, FinalStatus::Success, json!({})).await;
    house.start().await;
    browser.sees("#head .state", "success").await;
    browser.sees("ol.events", "while nobody served").await;
    browser.sees("#restarted", "The server was restarted.").await;
    browser.sees("#live", "Live").await;
    let refused =
        ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"];
    assert_eq!(browser.complaints(&refused).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_a_busy_run_stays_bounded_on_its_page() {
    let house = House::open().await;
    let run = house.engine().queue(request()).await.expect("a run").run_id;
    let holder = claim(&house, &run, "worker-1").await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.sees("#live", "Live").await;
    for batch in 0..30 {
        let lines =
            (0..100).map(|line| event(Level::Info, &format!("line {}", batch * 100 + line), json!({})));
        house.engine().append(&run, lines.collect(), &holder).await.expect("events");
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    browser.sees("ol.events li:last-child", "line 2999").await;
    let rows = browser.run("return document.querySelectorAll('ol.events > li').length").await.as_i64();
    assert!(rows.is_some_and(|rows| (100..=1_000).contains(&rows)), "{rows:?}");
    let asked = browser
        .run(
            "const all = performance.getEntriesByType('resource'); \
              return all.filter((one) => one.initiatorType === 'fetch').length",
        )
        .await;
    assert!(asked.as_i64().is_some_and(|asked| asked < 60), "the page asked {asked} times");
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tabs_are_open_and_each_is_live_when_it_is_looked_at() {
    let house = House::open().await;
    let run = house.engine().queue(request()).await.expect("a run").run_id;
    let browser = Browser::open(&Wish::default()).await;
    let mut tabs = Vec::new();
    for _ in 0..10 {
        let tab = browser.another_tab().await;
        // More streams than a browser opens to one server would keep the next tab from loading at all.
        browser.go(&house.url(&format!("/runs/{run}"))).await;
        browser.sees("#live", "Live").await;
        tabs.push(tab);
    }
    let holder = claim(&house, &run, "worker-1").await;
    finish(&house, &run, &holder, FinalStatus::Success, json!({})).await;
    for tab in [&tabs[0], &tabs[9]] {
        browser.look_at(tab).await;
        browser.sees("#head .state", "success").await;
    }
    browser.is_content().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_fits_a_wide_and_a_narrow_screen() {
    let house = House::open().await;
    let things = furnish(&house).await;
    let mut pages = paths(&things);
    pages.retain(|path| !path.contains("/tail"));
    pages.extend(["/tokens", "/audit", "/sign-in"].map(str::to_owned));
    let browser = Browser::open(&Wish::default()).await;
    for path in &pages {
        browser.go(&house.url(path)).await;
        let mut name = path.trim_matches('/').to_owned();
        for (run, state) in
            [(&things.failed, "failed"), (&things.running, "running"), (&things.queued, "queued")]
        {
            name = name.replace(run.as_str(), state);
        }
        let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        fits(&browser, if name.is_empty() { "overview" } else { &name }).await;
    }
}
