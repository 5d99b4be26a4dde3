//! Every page, for everybody: nothing is run within it, its forms carry what they must, and nobody is offered what
//! would be refused.

use crate::furnish::{Things, furnish, paths};
use crate::house::{House, Reader};
use reqwest::{Method, StatusCode};
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_testkit::door::{Kind, Stage};

on_both! {
    no_page_has_anything_that_a_browser_would_run_and_every_form_keeps_forgers_out,
    every_answer_says_what_may_be_run_and_that_it_is_not_to_be_kept,
    pages_show_what_their_reader_may_see_and_nothing_else,
    an_empty_house_says_what_to_do_next,
}

/// Pages for admins alone.
const ADMIN: [&str; 2] = ["/tokens", "/audit"];

/// The tags of a page, each as it stands.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag).collect()
}

/// Fails where something within a page would be run or would style it.
#[track_caller]
pub(crate) fn check_inert(path: &str, page: &str) {
    for tag in tags(page) {
        let name = tag.split_whitespace().next().unwrap_or_default();
        if name == "script" {
            assert!(tag.starts_with("script src=\"/assets/console."), "{path}: <{tag}>");
        }
        assert!(!matches!(name, "style" | "iframe" | "object" | "embed" | "base"), "{path}: <{tag}>");
        // Outside of quotes, a word that begins so would be a handler or a style.
        for word in tag.split('"').step_by(2).flat_map(str::split_whitespace) {
            assert!(!word.starts_with("on") && !word.starts_with("style"), "{path}: <{tag}>");
        }
    }
    assert!(!page.contains("<script>"), "{path}");
}

/// The forms of a page that change something.
pub(crate) fn changing(page: &str) -> Vec<&str> {
    page.split("<form")
        .skip(1)
        .filter_map(|rest| rest.split_once("</form>"))
        .map(|(form, _)| form)
        .filter(|form| form.split_once('>').is_some_and(|(tag, _)| tag.contains("method=\"post\"")))
        .collect()
}

async fn everything(reader: &Reader, things: &Things, role: Role) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for path in paths(things) {
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

async fn no_page_has_anything_that_a_browser_would_run_and_every_form_keeps_forgers_out(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let mut seen = 0;
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let reader = house.signed_in(role, None).await;
        for (path, page) in everything(&reader, &things, role).await {
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
    assert!(seen > 20, "only {seen} forms were looked at");
    check_inert("/sign-in", &house.reader().page("/sign-in?next=%22%3E%3Cscript%3E").await);
    check_inert(
        "404",
        &house.signed_in(Role::Viewer, None).await.get("/runs/nonsense").await.text().await.expect("a text"),
    );
}

async fn every_answer_says_what_may_be_run_and_that_it_is_not_to_be_kept(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let reader = house.signed_in(Role::Admin, None).await;
    let mut asked = paths(&things);
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
async fn assets_are_kept_for_ever_under_a_name_that_their_contents_give() {
    let house = House::open().await;
    let reader = house.reader();
    let page = reader.page("/").await;
    let found: Vec<&str> = page.split('"').filter(|text| text.starts_with("/assets/")).collect();
    for (ending, media) in [("css", "text/css"), ("js", "text/javascript"), ("svg", "image/svg+xml")] {
        let path = found.iter().find(|path| path.ends_with(ending)).expect("it is on the page");
        let answer = reader.get(path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert!(answer.headers()["content-type"].to_str().expect("a text").starts_with(media));
        assert_eq!(answer.headers()["cache-control"], "public, max-age=31536000, immutable");
        let other = path.replace("console.", "console.0").replace("icon.", "icon.0");
        assert_eq!(reader.get(&other).await.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(page.matches("<script").count(), 1, "one script, and it is ours");
}

async fn pages_show_what_their_reader_may_see_and_nothing_else(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let bank = house.signed_in(Role::Operator, Some("bank")).await;
    assert_eq!(bank.get(&format!("/runs/{}", things.failed)).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(bank.get("/feeds/stones").await.status(), StatusCode::NOT_FOUND);
    for path in ["/", "/runs", "/feeds", "/flags", "/schedules", "/workers", "/queues/work-items"] {
        let page = bank.page(path).await;
        for hidden in [things.failed.as_str(), things.queued.as_str(), "nightly", "letter-1", "/feeds/stones"]
        {
            assert!(!page.contains(hidden), "{path} shows {hidden}");
        }
    }
    // A worker cannot sign in, and what it shows instead of a session lets it see no page either.
    let worker = house.token(Role::Worker, None).await;
    let asked = house.reader().ask(Method::GET, "/runs").bearer_auth(worker).send();
    assert_eq!(asked.await.expect("an answer").status(), StatusCode::FORBIDDEN);
}

async fn an_empty_house_says_what_to_do_next(kind: Kind) {
    let access = Access::Open { name: "ann".to_owned() };
    let house = House::with(Stage::open_bare(kind).await, access).await;
    let reader = house.reader();
    for (path, hint) in [
        ("/", "tidemill feed add"),
        ("/", "tidemill work -- COMMAND"),
        ("/runs", "tidemill project create shop --env staging"),
        ("/feeds", "tidemill demo --serve"),
        ("/workers", "tidemill up"),
        ("/schedules", "tidemill schedule"),
        ("/flags", "Nothing is held."),
        ("/queues/work-items", "nothing was given up"),
        ("/audit", "Nobody has changed anything yet."),
    ] {
        let page = reader.page(path).await;
        assert!(page.contains(hint), "{path} does not say {hint}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_script_gets_a_page_without_its_frame() {
    let house = House::open().await;
    let reader = house.reader();
    let whole = reader.page("/runs").await;
    let inner = reader
        .ask(reqwest::Method::GET, "/runs")
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
async fn an_address_that_nobody_knows_is_a_page_to_browsers_and_a_problem_to_programs() {
    let house = House::guarded().await;
    let stranger = house.reader();
    let ask = async |method: Method, path: &str, accept: &str| {
        stranger.ask(method, path).header("accept", accept).send().await.expect("an answer")
    };
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for path in ["/nowhere", "/runs/run-1/nowhere", "/favicon.ico", "/%3Cscript%3Ealert(1)%3C/script%3E"] {
        let answer = ask(Method::GET, path, browser).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let headers = answer.headers();
        assert_eq!(headers["content-type"], "text/html; charset=utf-8", "{path}");
        assert!(headers.contains_key("content-security-policy"), "{path}: {headers:?}");
        let page = answer.text().await.expect("a text");
        assert!(page.contains("There is nothing here") && page.contains("No page of this server"), "{page}");
        assert!(page.contains("href=\"/\"") && page.contains("Overview"), "there is a way on: {page}");
        assert!(!page.contains("<script>alert"), "{page}");
    }
    let programs = [
        (Method::GET, "/nowhere", "*/*"),
        (Method::GET, "/nowhere", "application/json"),
        (Method::GET, "/v1/nowhere", browser),
        (Method::POST, "/nowhere", browser),
    ];
    for (method, path, accept) in programs {
        let answer = ask(method.clone(), path, accept).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
        let problem: serde_json::Value = answer.json().await.expect("a problem");
        assert_eq!(problem["code"], "no_route", "{method} {path} {accept}");
    }
    let form = ask(Method::GET, "/runs/run-1/cancel", browser).await;
    assert_eq!(form.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(form.text().await.expect("a text").contains("is for a form, and shows no page"));
}
