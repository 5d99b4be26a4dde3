//! All pages for all roles: no inline code, CSRF tokens in all forms, and no actions that the API would refuse.

use crate::sample_data::{SampleData, paths, populate};
use crate::server::{ConsoleServer, WebClient};
use reqwest::{Method, StatusCode};
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::run::QueueRun;
use tidemill_testkit::interface::{Fixture, Kind};

on_both! {
    pages_have_no_inline_code_and_forms_have_csrf_tokens,
    responses_have_security_headers_and_are_not_cached,
    pages_show_only_objects_visible_to_the_user,
    empty_pages_show_the_next_step,
    runs_are_found_by_kind,
}

/// Pages that only admins may open.
const ADMIN: [&str; 2] = ["/tokens", "/audit"];

/// All tags of a page.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag).collect()
}

/// Fails if a page contains inline scripts or styles.
#[track_caller]
pub(crate) fn check_inert(path: &str, page: &str) {
    for tag in tags(page) {
        let name = tag.split_whitespace().next().unwrap_or_default();
        if name == "script" {
            assert!(tag.starts_with("script src=\"/assets/console."), "{path}: <{tag}>");
        }
        assert!(!matches!(name, "style" | "iframe" | "object" | "embed" | "base"), "{path}: <{tag}>");
        // An attribute name with this prefix would be an event handler or a style.
        for word in tag.split('"').step_by(2).flat_map(str::split_whitespace) {
            assert!(!word.starts_with("on") && !word.starts_with("style"), "{path}: <{tag}>");
        }
    }
    assert!(!page.contains("<script>"), "{path}");
}

/// Forms of a page that change something.
pub(crate) fn changing(page: &str) -> Vec<&str> {
    page.split("<form")
        .skip(1)
        .filter_map(|rest| rest.split_once("</form>"))
        .map(|(form, _)| form)
        .filter(|form| form.split_once('>').is_some_and(|(tag, _)| tag.contains("method=\"post\"")))
        .collect()
}

async fn everything(reader: &WebClient, data: &SampleData, role: Role) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for path in paths(data) {
        pages.push((path.clone(), reader.page(&path).await));
    }
    for path in ADMIN {
        let answer = reader.get(path).await;
        let allowed = if role == Role::Admin { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(answer.status(), allowed, "{path}");
        pages.push((path.to_owned(), answer.text().await.expect("a text")));
    }
    pages
}

async fn pages_have_no_inline_code_and_forms_have_csrf_tokens(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let mut seen = 0;
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let reader = server.signed_in(role, None).await;
        for (path, page) in everything(&reader, &data, role).await {
            check_inert(&path, &page);
            let forms = changing(&page);
            for form in &forms {
                assert!(form.contains("name=\"csrf\" value=\""), "{path}: {form}");
            }
            let others: Vec<_> = forms.iter().filter(|form| !form.contains("action=\"/sign-out\"")).collect();
            if role == Role::Viewer {
                assert!(others.is_empty(), "{path} offers a viewer {others:?}");
            }
            seen += others.len();
        }
    }
    assert!(seen > 20, "only {seen} forms were checked");
    check_inert("/sign-in", &server.reader().page("/sign-in?next=%22%3E%3Cscript%3E").await);
    check_inert(
        "404",
        &server.signed_in(Role::Viewer, None).await.get("/runs/nonsense").await.text().await.expect("a text"),
    );
}

async fn responses_have_security_headers_and_are_not_cached(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let reader = server.signed_in(Role::Admin, None).await;
    let mut asked = paths(&data);
    asked.extend(["/sign-in", "/runs/nonsense", "/feeds/none", "/tokens"].map(str::to_owned));
    for path in asked {
        let answer = reader.get(&path).await;
        let header =
            |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"),
            "{path}: {policy}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
        assert_eq!(header("content-type"), "text/html; charset=utf-8", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assets_are_immutable_and_named_by_content() {
    let server = ConsoleServer::without_tokens().await;
    let reader = server.reader();
    let page = reader.page("/").await;
    let found: Vec<&str> = page.split('"').filter(|text| text.starts_with("/assets/")).collect();
    for (ending, media) in [("css", "text/css"), ("js", "text/javascript"), ("svg", "image/svg+xml")] {
        let path = found.iter().find(|path| path.ends_with(ending)).expect("the page has the asset");
        let answer = reader.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert!(answer.headers()["content-type"].to_str().expect("a text").starts_with(media));
        assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
        let other = path.replace("console.", "console.0").replace("icon.", "icon.0");
        assert_eq!(reader.get(&other).await.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(page.matches("<script").count(), 1, "the page has exactly one script");
}

async fn pages_show_only_objects_visible_to_the_user(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let bank = server.signed_in(Role::Operator, Some("bank")).await;
    assert_eq!(bank.get(&format!("/runs/{}", data.failed)).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(bank.get("/feeds/stones").await.status(), StatusCode::NOT_FOUND);
    for path in ["/", "/runs", "/feeds", "/flags", "/schedules", "/workers", "/queues/work-items"] {
        let page = bank.page(path).await;
        for hidden in [data.failed.as_str(), data.queued.as_str(), "nightly", "letter-1", "/feeds/stones"] {
            assert!(!page.contains(hidden), "{path} shows {hidden}");
        }
    }
    // A worker token cannot sign in, and as a bearer token it opens no page either.
    let worker = server.token(Role::Worker, None).await;
    let asked = server.reader().request(Method::GET, "/runs").bearer_auth(worker).send();
    assert_eq!(asked.await.expect("an answer").status(), StatusCode::FORBIDDEN);
}

async fn empty_pages_show_the_next_step(kind: Kind) {
    let access = Access::Open { name: "ann".to_owned() };
    let server = ConsoleServer::with(Fixture::open_bare(kind).await, access).await;
    let reader = server.reader();
    for (path, hint) in [
        ("/", "tidemill feed try URL"),
        ("/", "tidemill work -- COMMAND"),
        ("/runs", "tidemill project create shop --env staging"),
        ("/feeds", "tidemill feed apply FILE"),
        ("/feeds", "tidemill demo --serve"),
        ("/workers", "tidemill up"),
        ("/schedules", "tidemill schedule"),
        ("/flags", "No flags are set."),
        ("/queues/work-items", "There are no dead letters."),
        ("/audit", "There are no changes yet."),
    ] {
        let page = reader.page(path).await;
        assert!(page.contains(hint), "{path} does not contain {hint}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_request_gets_page_without_frame() {
    let server = ConsoleServer::without_tokens().await;
    let reader = server.reader();
    let whole = reader.page("/runs").await;
    let inner = reader
        .request(reqwest::Method::GET, "/runs")
        .header("x-tidemill-live", "1")
        .send()
        .await
        .expect("an answer");
    let boot = inner.headers()["x-tidemill-boot"].to_str().expect("a text").to_owned();
    let inner = inner.text().await.expect("a text");
    assert!(whole.contains(&format!("data-boot=\"{boot}\"")) && whole.starts_with("<!DOCTYPE html>"));
    assert!(inner.starts_with("<main") && inner.contains("id=\"runs\" data-live"), "{inner}");
    assert!(inner.contains("data-stream=\"/v1/stream\""), "{inner}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_address_is_page_for_browsers_and_json_for_programs() {
    let server = ConsoleServer::with_tokens().await;
    let stranger = server.reader();
    let ask = async |method: Method, path: &str, accept: &str| {
        stranger.request(method, path).header("accept", accept).send().await.expect("an answer")
    };
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for path in ["/missing", "/runs/run-1/missing", "/favicon.ico", "/%3Cscript%3Ealert(1)%3C/script%3E"] {
        let answer = ask(Method::GET, path, browser).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let headers = answer.headers();
        assert_eq!(headers["content-type"], "text/html; charset=utf-8", "{path}");
        assert!(headers.contains_key("content-security-policy"), "{path}: {headers:?}");
        let page = answer.text().await.expect("a text");
        assert!(page.contains("Not found") && page.contains("No page has the address"), "{page}");
        assert!(page.contains("href=\"/\"") && page.contains("Overview"), "the page has a link: {page}");
        assert!(!page.contains("<script>alert"), "{page}");
    }
    let programs = [
        (Method::GET, "/missing", "*/*"),
        (Method::GET, "/missing", "application/json"),
        (Method::GET, "/v1/missing", browser),
        (Method::POST, "/missing", browser),
    ];
    for (method, path, accept) in programs {
        let answer = ask(method.clone(), path, accept).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
        let problem: serde_json::Value = answer.json().await.expect("a problem");
        assert_eq!(problem["code"], "no_route", "{method} {path} {accept}");
    }
    let form = ask(Method::GET, "/runs/run-1/cancel", browser).await;
    assert_eq!(form.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(form.text().await.expect("a text").contains("only accepts submitted forms"));
}

async fn runs_are_found_by_kind(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let of_kind = |kind: &str| QueueRun { kind: kind.to_owned(), ..QueueRun::new("shop", "staging") };
    let email = server.engine().queue(of_kind("send <email>")).await.expect("a run is queued").run_id;
    let report = server.engine().queue(of_kind("report")).await.expect("a run is queued").run_id;
    let viewer = server.signed_in(Role::Viewer, None).await;
    let row = |run: &RunId| format!("data-key=\"{run}\"");
    let page = viewer.page("/runs?kind=send+%3Cemail%3E").await;
    assert!(page.contains(&row(&email)) && !page.contains(&row(&report)), "{page}");
    assert!(page.contains("name=\"kind\" value=\"send &lt;email&gt;\""), "{page}");
    assert!(page.contains("<b><bdi>send &lt;email&gt;</bdi></b>"), "{page}");
    let page = viewer.page(&format!("/runs/{email}")).await;
    assert!(page.contains("<dt>Kind</dt><dd><bdi>send &lt;email&gt;</bdi></dd>"), "{page}");
    let none = viewer.page("/runs?kind=emai").await;
    assert!(none.contains("No runs match this filter"), "{none}");
    let long = viewer.page(&format!("/runs?kind={}", "k".repeat(101))).await;
    assert!(long.contains("role=\"alert\"") && !long.contains(&row(&email)), "{long}");
}
