//! What others wrote is shown, and nothing of it is obeyed.

use crate::furnish::{FEED, NASTY, NASTY_NAME, furnish};
use crate::house::House;
use tidemill_core::access::Role;
use tidemill_testkit::door::Kind;

on_both! {
    every_text_of_others_is_shown_as_it_is_and_obeyed_nowhere,
    texts_at_their_limits_are_cut_and_all_of_them_is_behind_a_link,
}

/// What the nasty text looks like on a page.
const SHOWN: &str = "&lt;/td&gt;&lt;script&gt;alert('x')&lt;/script&gt;&quot;'&gt;\
                     &lt;img src=x onerror=alert(1)&gt;&amp;amp;";

async fn every_text_of_others_is_shown_as_it_is_and_obeyed_nowhere(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let admin = house.signed_in(Role::Admin, None).await;
    let failed = format!("/runs/{}", things.failed);
    let pages = [
        // Where, and what must be seen there.
        ("/", "⟨U+202E⟩"),
        ("/runs", SHOWN),
        ("/workers", SHOWN),
        ("/schedules", SHOWN),
        ("/flags", SHOWN),
        ("/queues/work-items", SHOWN),
        (&format!("/feeds/{FEED}"), SHOWN),
        (&format!("/runs/{}", things.running), SHOWN),
        (&format!("/runs/{}", things.queued), SHOWN),
        (&failed, "⟨ESC⟩[31m⟨U+202E⟩txt.exe"),
        (&failed, SHOWN),
    ];
    for (path, seen) in pages {
        let page = admin.page(path).await;
        assert!(page.contains(seen), "{path} does not show {seen}: {page}");
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{path}");
        for letter in ['\u{1b}', '\u{202e}', '\0', '\u{9b}'] {
            assert!(!page.contains(letter), "{path} has {letter:?} in it");
        }
    }
    assert!(NASTY.starts_with("</td>") && NASTY_NAME.starts_with("</td>"));
}

async fn texts_at_their_limits_are_cut_and_all_of_them_is_behind_a_link(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let admin = house.signed_in(Role::Admin, None).await;
    let path = format!("/runs/{}", things.failed);
    let page = admin.page(&path).await;
    assert!(page.len() < 100_000, "{} bytes", page.len());
    let whole = format!("/v1/runs/{}/events?after=", things.failed);
    assert!(page.contains(&whole), "a long message has a link to all of it");
    let link = page.split('"').find(|text| text.starts_with(&whole)).expect("a link").replace("&amp;", "&");
    let event = admin.page(&link).await;
    assert!(event.contains("x<y ") && event.len() > 8_000);
    assert!(!page.contains("href=\"javascript:"), "a place that would be run is no link");
    assert!(page.contains("javascript:alert(1)"), "and is shown");
}
