//! Keyboard operation: all controls are reachable in document order, have a visible focus, and can be activated.

use crate::driver::{Browser, BrowserOptions, ENTER, TAB};
use crate::sample_data::populate;
use crate::server::ConsoleServer;
use serde_json::{Value, json};

/// Collects all controls in document order, then records each focused element and whether its focus is visible.
const RECORD_FOCUS: &str = "
    const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
    window.wanted = [...document.querySelectorAll(all)].filter((one) => !one.disabled && one.checkVisibility());
    window.reached = [];
    document.addEventListener('focusin', ({ target }) => {
      const look = getComputedStyle(target);
      const seen = look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2;
      reached.push({ index: wanted.indexOf(target), seen, what: target.outerHTML.slice(0, 160) });
    });
    return wanted.map((one) => one.outerHTML.slice(0, 160));";

/// Moves through a page with the Tab key.
async fn tab_through(browser: &Browser, url: &str) {
    browser.go(url).await;
    browser.wait_for_text("#live", "Live").await;
    let wanted = browser.run(RECORD_FOCUS).await;
    let wanted = wanted.as_array().expect("a list");
    assert!(wanted.len() > 15, "{url}: {wanted:?}");
    // Scrollable elements are focused as well, although they are no controls.
    browser.press(&TAB.repeat(wanted.len() + 10)).await;
    let reached = browser.run("return reached").await;
    let mut indexes = Vec::new();
    for stop in reached.as_array().expect("a list") {
        assert_eq!(stop["seen"], true, "{url}: the focus is not visible: {}", stop["what"]);
        let index = stop["index"].as_i64().expect("a number");
        if index >= 0 && !indexes.contains(&index) {
            indexes.push(index);
        }
    }
    let missed: Vec<&Value> = wanted
        .iter()
        .enumerate()
        .filter(|(index, _)| !i64::try_from(*index).is_ok_and(|index| indexes.contains(&index)))
        .map(|(_, what)| what)
        .collect();
    assert!(missed.is_empty(), "{url}: the Tab key does not reach {missed:?}");
    assert!(indexes.is_sorted(), "{url}: the order is not the document order: {indexes:?}");
}

/// The focused element: its tag, and whether it is in the content.
async fn focused(browser: &Browser) -> Value {
    let script = "const here = document.activeElement; return [here.nodeName, !!here.closest('#main')]";
    browser.run(script).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_controls_are_usable_with_the_keyboard() {
    let server = ConsoleServer::without_tokens().await;
    let data = populate(&server).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    for path in ["/".to_owned(), "/runs".to_owned(), format!("/runs/{}", data.running)] {
        tab_through(&browser, &server.url(&path)).await;
    }
    // The first stop skips the navigation, and becomes visible with the focus.
    browser.go(&server.url("/runs")).await;
    browser.press(TAB).await;
    let first = "const here = document.activeElement; \
                 return [here.textContent, here.getBoundingClientRect().left >= 0]";
    assert_eq!(browser.run(first).await, json!(["Skip to content", true]));
    browser.press(ENTER).await;
    assert_eq!(focused(&browser).await, json!(["MAIN", true]));
    browser.press(TAB).await;
    assert_eq!(focused(&browser).await, json!(["SELECT", true]), "the first filter");
    // Space toggles a checkbox.
    let box_of = format!("document.querySelector('input[value=\"{}\"]')", data.queued);
    browser.run(&format!("{box_of}.focus()")).await;
    browser.press(" ").await;
    assert_eq!(browser.run(&format!("return {box_of}.checked")).await, json!(true));
    // Enter opens the details, and Space presses the button in them.
    browser.go(&server.url(&format!("/runs/{}", data.queued))).await;
    browser.run("document.querySelector('#head details.drop > summary').focus()").await;
    browser.press(ENTER).await;
    browser.wait_for_text("#head details.drop[open]", "Cancel").await;
    browser.press(&format!("{TAB}too late")).await;
    let typed = browser.run("return [document.activeElement.name, document.activeElement.value]").await;
    assert_eq!(typed, json!(["reason", "too late"]));
    browser.press(TAB).await;
    assert_eq!(focused(&browser).await, json!(["BUTTON", true]));
    browser.press(" ").await;
    browser.wait_for_text("#head .state", "cancelled").await;
    let ended = server.engine().run(&data.queued).await.expect("a run");
    assert_eq!(ended.cancel_reason.as_deref(), Some("too late"));
    browser.assert_no_errors().await;
}
