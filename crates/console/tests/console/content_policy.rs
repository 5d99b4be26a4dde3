//! The browser enforces the content security policy, and the test driver reports violations.

use crate::driver::{Browser, BrowserOptions};
use crate::server::ConsoleServer;
use axum::Router;
use axum::extract::Path;
use axum::response::Html;
use axum::routing::get;
use http::HeaderName;
use tokio::net::TcpListener;

/// Policy violations by name: inline code and styles, and foreign resources.
const VIOLATIONS: [(&str, &str); 8] = [
    ("script", "<script>document.title = 'it ran'</script>"),
    ("handler", "<img src=\"/nothing\" alt=\"\" onerror=\"document.title = 'it ran'\">"),
    ("address", "<a href=\"javascript:void(document.title = 'it ran')\">press</a>"),
    ("style", "<style>p { color: red }</style>"),
    ("attribute", "<p style=\"color: red\">red</p>"),
    ("far-script", "<script src=\"http://127.0.0.2:9/far.js\"></script>"),
    ("far-picture", "<img src=\"http://127.0.0.2:9/far.png\" alt=\"\">"),
    ("frame", "<iframe src=\"/nothing\"></iframe>"),
];

/// A test page with a violation.
fn page(name: &str) -> Html<String> {
    let fault = VIOLATIONS.iter().find(|(fault, _)| *fault == name).map_or("", |(_, fault)| *fault);
    Html(format!("<!DOCTYPE html><title>still</title><h1>{name}</h1><p>text</p>{fault}"))
}

/// Serves the test pages with a policy. Returns the base URL.
async fn serve(policy: http::HeaderValue) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let header = HeaderName::from_static("content-security-policy");
    let answer = move |Path(name): Path<String>| {
        let answer = ([(header.clone(), policy.clone())], page(&name));
        async move { answer }
    };
    let app = Router::new().route("/{name}", get(answer));
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_blocks_and_reports_policy_violations() {
    let server = ConsoleServer::without_tokens().await;
    let ours = server.reader().get("/").await.headers()["content-security-policy"].clone();
    let base = serve(ours).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&format!("{base}/clean")).await;
    browser.assert_no_errors().await;
    for (name, _) in VIOLATIONS {
        browser.go(&format!("{base}/{name}")).await;
        browser.wait_for_text("h1", name).await;
        if name == "address" {
            browser.click("a").await;
        }
        browser.wait_for_error("Content Security Policy").await;
        assert_eq!(browser.run("return document.title").await, "still", "{name} ran");
        let colour = "return getComputedStyle(document.querySelector('p:last-of-type')).color";
        assert_ne!(browser.run(colour).await, "rgb(255, 0, 0)", "{name} styles the page");
    }
}
