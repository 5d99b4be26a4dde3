//! Somebody without a mouse: everything is reached in the order in which it stands, is seen to be reached, and acts.

use crate::driver::{Browser, ENTER, TAB, Wish};
use crate::furnish::furnish;
use crate::house::House;
use serde_json::{Value, json};

/// Notes what can be acted on, in the order in which it stands, and then what the focus comes to, and whether one sees
/// it.
const WATCH: &str = "
    const all = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
    window.wanted = [...document.querySelectorAll(all)].filter((one) => !one.disabled && one.checkVisibility());
    window.reached = [];
    document.addEventListener('focusin', ({ target }) => {
      const look = getComputedStyle(target);
      const seen = look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2;
      reached.push({ place: wanted.indexOf(target), seen, what: target.outerHTML.slice(0, 160) });
    });
    return wanted.map((one) => one.outerHTML.slice(0, 160));";

/// Goes through a page with the Tab key alone.
async fn walk(browser: &Browser, url: &str) {
    browser.go(url).await;
    browser.sees("#live", "Live").await;
    let wanted = browser.run(WATCH).await;
    let wanted = wanted.as_array().expect("a list");
    assert!(wanted.len() > 15, "{url}: {wanted:?}");
    // Parts that scroll are stops too, though nothing is done there.
    browser.press(&TAB.repeat(wanted.len() + 10)).await;
    let reached = browser.run("return reached").await;
    let mut places = Vec::new();
    for stop in reached.as_array().expect("a list") {
        assert_eq!(stop["seen"], true, "{url}: one does not see where one is: {}", stop["what"]);
        let place = stop["place"].as_i64().expect("a number");
        if place >= 0 && !places.contains(&place) {
            places.push(place);
        }
    }
    let missed: Vec<&Value> = wanted
        .iter()
        .enumerate()
        .filter(|(place, _)| !i64::try_from(*place).is_ok_and(|place| places.contains(&place)))
        .map(|(_, what)| what)
        .collect();
    assert!(missed.is_empty(), "{url}: the Tab key does not reach {missed:?}");
    assert!(places.is_sorted(), "{url}: the order is not that of the page: {places:?}");
}

/// Where the focus is: the name of its tag, and whether that is in the content.
async fn place(browser: &Browser) -> Value {
    let script = "const here = document.activeElement; return [here.nodeName, !!here.closest('#main')]";
    browser.run(script).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_reached_and_pressed_with_the_keyboard_alone() {
    let house = House::open().await;
    let things = furnish(&house).await;
    let browser = Browser::open(&Wish::default()).await;
    for path in ["/".to_owned(), "/runs".to_owned(), format!("/runs/{}", things.running)] {
        walk(&browser, &house.url(&path)).await;
    }
    // The first stop leads past the navigation, and is seen as soon as one is there.
    browser.go(&house.url("/runs")).await;
    browser.press(TAB).await;
    let first = "const here = document.activeElement; \
                 return [here.textContent, here.getBoundingClientRect().left >= 0]";
    assert_eq!(browser.run(first).await, json!(["Skip to the content", true]));
    browser.press(ENTER).await;
    assert_eq!(place(&browser).await, json!(["MAIN", true]));
    browser.press(TAB).await;
    assert_eq!(place(&browser).await, json!(["SELECT", true]), "the first filter");
    // Space ticks a box.
    let box_of = format!("document.querySelector('input[value=\"{}\"]')", things.queued);
    browser.run(&format!("{box_of}.focus()")).await;
    browser.press(" ").await;
    assert_eq!(browser.run(&format!("return {box_of}.checked")).await, json!(true));
    // Enter opens what asks first, and Space presses the button in it.
    browser.go(&house.url(&format!("/runs/{}", things.queued))).await;
    browser.run("document.querySelector('#head details.drop > summary').focus()").await;
    browser.press(ENTER).await;
    browser.sees("#head details.drop[open]", "Cancel").await;
    browser.press(&format!("{TAB}too late")).await;
    let typed = browser.run("return [document.activeElement.name, document.activeElement.value]").await;
    assert_eq!(typed, json!(["reason", "too late"]));
    browser.press(TAB).await;
    assert_eq!(place(&browser).await, json!(["BUTTON", true]));
    browser.press(" ").await;
    browser.sees("#head .state", "cancelled").await;
    let ended = house.engine().run(&things.queued).await.expect("a run");
    assert_eq!(ended.cancel_reason.as_deref(), Some("too late"));
    browser.is_content().await;
}
