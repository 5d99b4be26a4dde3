//! User-supplied texts are escaped on every page.

use crate::sample_data::{DEFINED_FEED, FEED, HOSTILE_NAME, HOSTILE_TEXT, populate};
use crate::server::ConsoleServer;
use tidemill_core::access::Role;
use tidemill_testkit::interface::Kind;

on_both! {
    hostile_texts_are_escaped_on_every_page,
    long_texts_are_truncated_with_a_link,
}

/// The hostile text as it must appear on a page.
const SHOWN: &str = "&lt;/td&gt;&lt;script&gt;alert('x')&lt;/script&gt;&quot;'&gt;\
                     &lt;img src=x onerror=alert(1)&gt;&amp;amp;";

async fn hostile_texts_are_escaped_on_every_page(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let admin = server.signed_in(Role::Admin, None).await;
    let failed = format!("/runs/{}", data.failed);
    let pages = [
        // Path and expected text.
        ("/", "⟨U+202E⟩"),
        ("/runs", SHOWN),
        ("/workers", SHOWN),
        ("/schedules", SHOWN),
        ("/flags", SHOWN),
        ("/queues/work-items", SHOWN),
        (&format!("/feeds/{FEED}"), SHOWN),
        (&format!("/feeds/{DEFINED_FEED}"), "&lt;/td&gt;&lt;script&gt;"),
        (&format!("/runs/{}", data.running), SHOWN),
        (&format!("/runs/{}", data.queued), SHOWN),
        (&failed, "⟨ESC⟩[31m⟨U+202E⟩txt.exe"),
        (&failed, SHOWN),
    ];
    for (path, expected) in pages {
        let page = admin.page(path).await;
        assert!(page.contains(expected), "{path} does not show {expected}: {page}");
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{path}");
        for letter in ['\u{1b}', '\u{202e}', '\0', '\u{9b}'] {
            assert!(!page.contains(letter), "{path} has {letter:?} in it");
        }
    }
    assert!(HOSTILE_TEXT.starts_with("</td>") && HOSTILE_NAME.starts_with("</td>"));
}

async fn long_texts_are_truncated_with_a_link(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let admin = server.signed_in(Role::Admin, None).await;
    let path = format!("/runs/{}", data.failed);
    let page = admin.page(&path).await;
    assert!(page.len() < 100_000, "{} bytes", page.len());
    let url = format!("/v1/runs/{}/events?after=", data.failed);
    assert!(page.contains(&url), "a long message has a link to its full text");
    let link = page.split('"').find(|text| text.starts_with(&url)).expect("a link").replace("&amp;", "&");
    let event = admin.page(&link).await;
    assert!(event.contains("x<y ") && event.len() > 8_000);
    assert!(!page.contains("href=\"javascript:"), "a javascript URL is not a link");
    assert!(page.contains("javascript:alert(1)"), "the URL is shown as text");
}
