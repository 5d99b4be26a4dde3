//! Forms: sign-in and sign-out, CSRF protection, their effects and their audit entries.

use crate::pages::check_inert;
use crate::sample_data::{claim, dead_letter, populate};
use crate::server::ConsoleServer;
use reqwest::{Method, StatusCode};
use std::sync::Arc;
use tidemill_api::access::{Access, LocalAccess};
use tidemill_core::access::Role;
use tidemill_core::run::{ClaimRuns, Holder, QueueRun, RunState};
use tidemill_testkit::interface::{Fixture, Kind};

const LOCAL_TOKEN: &str = "tm_0707070707070707070707070707070707070707070707070707070707070707";

on_both! {
    unauthenticated_user_signs_in_and_returns,
    sign_in_with_machine_token_is_refused_with_reason,
    cross_site_sign_in_is_refused,
    sign_out_ends_the_session,
    form_without_csrf_token_is_refused,
    local_server_refuses_cross_site_forms,
    forms_of_a_viewer_are_refused,
    stalled_run_is_failed_with_or_without_retry,
    bulk_cancel_and_retry_are_confirmed_and_audited,
    dead_letters_are_replayed_individually_and_all,
    token_secret_is_shown_once_and_token_is_revoked,
    flags_and_schedules_are_paused_and_resumed,
    rule_tester_shows_matching_rule_and_is_not_audited,
    worker_drain_and_undo_are_audited,
    refused_form_links_back_with_entered_values,
}

fn location(answer: &reqwest::Response) -> &str {
    answer.headers()["location"].to_str().expect("a text")
}

/// Checks that a response is a confirmation page, and returns it.
async fn confirmation_page(answer: reqwest::Response) -> String {
    assert_eq!(answer.status(), StatusCode::OK);
    let page = answer.text().await.expect("a text");
    assert!(page.contains("id=\"confirm\"") && page.contains("name=\"sure\" value=\"yes\""), "{page}");
    check_inert("confirmation", &page);
    page
}

/// The same form with the confirmation.
fn confirmed<'a>(form: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [form, &[("sure", "yes")]].concat()
}

async fn refused_form_links_back_with_entered_values(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let admin = server.signed_in(Role::Admin, None).await;
    let csrf = admin.csrf().await;
    let form =
        [("csrf", csrf.as_str()), ("back", "/agents?done=pool-set"), ("name", "na\"rrow"), ("size", "wide")];
    let refused = admin.post("/pools", &form).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let page = refused.text().await.expect("a text");
    let back = "/agents?kept-name=na%22rrow&amp;kept-size=wide";
    assert!(page.contains(&format!("href=\"{back}\"")), "{page}");
    assert!(!page.contains(&csrf), "{page}");
    check_inert("error page", &page);
    let page = admin.page(&back.replace("&amp;", "&")).await;
    assert!(page.contains("value=\"na&quot;rrow\"") && page.contains("value=\"wide\""), "{page}");
    let form = [("csrf", csrf.as_str()), ("back", "/flags"), ("scope", "project:none"), ("note", "a deploy")];
    let refused = admin.post("/flags", &form).await;
    assert!(refused.status().is_client_error(), "{refused:?}");
    let page = refused.text().await.expect("a text");
    assert!(page.contains("href=\"/flags?kept-scope=project%3Anone&amp;kept-note=a+deploy\""), "{page}");
    assert!(admin.page("/flags?kept-note=a+deploy").await.contains("value=\"a deploy\""));
    // After success, the redirect drops the previous values.
    let form =
        [("csrf", csrf.as_str()), ("back", "/agents?kept-name=wrong"), ("name", "narrow"), ("size", "2")];
    assert_eq!(location(&admin.post("/pools", &form).await), "/agents?done=pool-set");
    // An error page that was not caused by a form has no link back.
    let missing = admin.get("/runs/nonsense").await.text().await.expect("a text");
    assert!(!missing.contains("Back to the form"), "{missing}");
}

async fn unauthenticated_user_signs_in_and_returns(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let stranger = server.reader();
    let answer = stranger.get("/runs?status=failed").await;
    assert_eq!(
        (answer.status(), location(&answer)),
        (StatusCode::SEE_OTHER, "/sign-in?next=%2Fruns%3Fstatus%3Dfailed")
    );
    let page = stranger.page("/sign-in?next=%2Fruns%3Fstatus%3Dfailed").await;
    assert!(page.contains("name=\"next\" value=\"/runs?status=failed\""));
    let wrong = stranger.post("/sign-in", &[("token", "tm_wrong"), ("next", "/runs")]).await;
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    assert!(wrong.text().await.expect("a text").contains("Unknown token."));
    let token = server.token(Role::Viewer, None).await;
    let elsewhere = stranger.post("/sign-in", &[("token", &token), ("next", "//evil.example/")]).await;
    assert_eq!(location(&elsewhere), "/");
    let cookie = elsewhere.headers()["set-cookie"].to_str().expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    assert!(!cookie.contains(&token), "the cookie does not contain the token");
}

async fn sign_in_with_machine_token_is_refused_with_reason(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    for role in [Role::Worker, Role::Agent] {
        let token = server.token(role, None).await;
        let refused = server.reader().post("/sign-in", &[("token", &token), ("next", "/")]).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert!(refused.headers().get("set-cookie").is_none(), "no session is created");
        let page = refused.text().await.expect("a text");
        assert!(page.contains(&format!("A token of role {role} cannot open pages")), "{page}");
        assert!(page.contains("name=\"token\""), "the form is shown again: {page}");
    }
}

async fn cross_site_sign_in_is_refused(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let token = server.token(Role::Viewer, None).await;
    let send = |origin: String| {
        let form = [("token", token.as_str()), ("next", "/")].map(|(name, value)| (name, value.to_owned()));
        server.reader().request(Method::POST, "/sign-in").header("origin", origin).form(&form).send()
    };
    let forged = send("https://evil.example".to_owned()).await.expect("an answer");
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    assert!(forged.headers().get("set-cookie").is_none(), "no session is created");
    let ours = send(server.url("")).await.expect("an answer");
    assert!(ours.status() == StatusCode::SEE_OTHER && ours.headers().contains_key("set-cookie"));
}

async fn sign_out_ends_the_session(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let reader = server.signed_in(Role::Viewer, None).await;
    let csrf = reader.csrf().await;
    let forged = reader.post("/sign-out", &[("csrf", "no")]).await;
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let out = reader.post("/sign-out", &[("csrf", &csrf)]).await;
    assert_eq!((out.status(), location(&out)), (StatusCode::SEE_OTHER, "/sign-in"));
    assert_eq!(reader.get("/runs").await.status(), StatusCode::SEE_OTHER);
}

async fn form_without_csrf_token_is_refused(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let operator = server.signed_in(Role::Operator, None).await;
    let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let path = format!("/runs/{run}/cancel");
    let csrf = operator.csrf().await;
    for form in [vec![], vec![("csrf", "wrong")], vec![("csrf", "")]] {
        assert_eq!(operator.post(&path, &form).await.status(), StatusCode::FORBIDDEN, "{form:?}");
    }
    let from_elsewhere = operator
        .request(Method::POST, &path)
        .header("origin", "https://evil.example")
        .form(&[("csrf", csrf.as_str())])
        .send()
        .await
        .expect("an answer");
    assert_eq!(from_elsewhere.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.engine().run(&run).await.expect("a run").status, RunState::Queued);
    let ours = operator.post(&path, &[("csrf", &csrf), ("reason", "no need"), ("back", "/runs")]).await;
    assert_eq!((ours.status(), location(&ours)), (StatusCode::SEE_OTHER, "/runs?done=cancelled"));
    let found = server.engine().run(&run).await.expect("a run");
    assert_eq!((found.status, found.cancel_reason.as_deref()), (RunState::Cancelled, Some("no need")));
}

async fn stalled_run_is_failed_with_or_without_retry(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let operator = server.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let engine = server.engine();
    for retry in [false, true] {
        let run = engine.queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
        let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
        engine.claim(ask).await.expect("the run is claimed");
        engine.start(&run, &Holder::default()).await.expect("the run starts");
        let path = format!("/runs/{run}");
        let page = operator.page(&path).await;
        assert!(!page.contains("Fail run") && !page.contains("s-stalled"), "{page}");
        let later = engine.store().now(None).await.expect("a time") + chrono::TimeDelta::minutes(6);
        engine.store().sweep(100, 3_600.0, Some(later)).await.expect("the sweep succeeds");
        let page = operator.page(&path).await;
        for shown in ["s-stalled", "It is stalled: worker", "Fail run", "Fail and retry"] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        let mut form = vec![("csrf", csrf.as_str()), ("reason", "the host is gone"), ("back", path.as_str())];
        form.extend(retry.then_some(("retry", "yes")));
        let answer = operator.post(&format!("{path}/fail"), &form).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let found = engine.run(&run).await.expect("a run");
        assert_eq!(
            (found.status, found.metadata["reason"].as_str()),
            (RunState::Failed, Some("the host is gone"))
        );
        let next = engine.store().tries(run.clone()).await.expect("tries").into_iter().nth(1);
        let expected = match &next {
            Some(next) => format!("/runs/{}?done=retried", next.run_id),
            None => format!("{path}?done=failed"),
        };
        assert_eq!((next.is_some(), location(&answer)), (retry, expected.as_str()));
    }
    let admin = server.signed_in(Role::Admin, None).await;
    assert!(admin.page("/audit").await.contains("/fail"), "the action is audited");
}

async fn local_server_refuses_cross_site_forms(kind: Kind) {
    let token = LOCAL_TOKEN.parse().expect("a token");
    let local = LocalAccess::new("ann".to_owned(), &token, "http://127.0.0.1:7171");
    let server = ConsoleServer::with(Fixture::open(kind).await, Access::Local(Arc::new(local))).await;
    let reader = server.reader();
    let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let path = format!("/runs/{run}/cancel");
    let send = |origin: String| {
        let request = reader.request(Method::POST, &path).header("origin", origin);
        request.header("authorization", format!("Bearer {LOCAL_TOKEN}")).form(&[("back", "/")]).send()
    };
    let forged = send("https://evil.example".to_owned()).await.expect("an answer");
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let ours = send(server.url("")).await.expect("an answer");
    assert_eq!(ours.status(), StatusCode::SEE_OTHER);
}

async fn forms_of_a_viewer_are_refused(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let data = populate(&server).await;
    let viewer = server.signed_in(Role::Viewer, None).await;
    let csrf = viewer.csrf().await;
    for path in [
        format!("/runs/{}/cancel", data.queued),
        format!("/runs/{}/fail", data.queued),
        format!("/runs/{}/retry", data.failed),
        "/feeds/stones/sync".to_owned(),
        "/feeds/stones/resume".to_owned(),
        "/schedules/nightly/resume".to_owned(),
    ] {
        let answer = viewer.post(&path, &[("csrf", &csrf)]).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let bulk = [("csrf", csrf.as_str()), ("act", "cancel"), ("run", data.queued.as_str())];
    assert_eq!(viewer.post("/runs/bulk", &bulk).await.status(), StatusCode::FORBIDDEN);
    let replay = [("csrf", csrf.as_str()), ("which", "all")];
    assert_eq!(viewer.post("/queues/work-items/replay", &replay).await.status(), StatusCode::FORBIDDEN);
    let token = [("csrf", csrf.as_str()), ("name", "mine"), ("role", "admin")];
    assert_eq!(viewer.post("/tokens", &token).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(server.engine().run(&data.queued).await.expect("a run").status, RunState::Queued);
}

async fn bulk_cancel_and_retry_are_confirmed_and_audited(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let operator = server.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id);
    }
    let held = claim(&server, &runs[0], "w").await;
    crate::sample_data::finish(
        &server,
        &runs[0],
        &held,
        tidemill_core::run::FinalStatus::Success,
        serde_json::json!({}),
    )
    .await;
    let mut form = vec![("csrf", csrf.as_str()), ("act", "cancel"), ("back", "/runs?status=queued")];
    form.extend(runs.iter().map(|run| ("run", run.as_str())));
    let page = confirmation_page(operator.post("/runs/bulk", &form).await).await;
    for text in
        ["Cancel 3 runs?", "<b>2</b> are waiting and end at once.", "<b>1</b> has ended and is not affected."]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(page.matches("name=\"run\"").count(), 3, "{page}");
    assert!(page.contains("href=\"/runs?status=queued\"") && page.contains("name=\"csrf\""), "{page}");
    assert!(page.contains(&format!("tidemill run cancel {}", runs[1])), "{page}");
    let found = server.engine().run(&runs[1]).await.expect("a run");
    assert_eq!(found.status, RunState::Queued, "the confirmation page changes nothing");
    let answer = operator.post("/runs/bulk", &confirmed(&form)).await;
    assert_eq!(location(&answer), "/runs?status=queued&done=bulk-cancel&count=2&of=3");
    let page = operator.page("/runs?status=queued&done=bulk-cancel&count=2&of=3").await;
    assert!(page.contains("2 of 3 cancelled or asked to stop."), "{page}");
    form[1] = ("act", "retry");
    let page = confirmation_page(operator.post("/runs/bulk", &form).await).await;
    assert!(page.contains("Retry 3 runs?") && page.contains("<b>2</b> failed or were cancelled"), "{page}");
    assert!(page.contains("<b>1</b> succeeded and is not affected."), "{page}");
    let answer = operator.post("/runs/bulk", &confirmed(&form)).await;
    assert_eq!(location(&answer), "/runs?status=queued&done=bulk-retry&count=2&of=3");
    let admin = server.signed_in(Role::Admin, None).await;
    let record = admin.page("/audit").await;
    let applied = "<code><bdi>runs.retry</bdi></code></td><td>applied</td>";
    assert_eq!(record.matches(applied).count(), 2, "{record}");
    assert!(
        record.contains("<code><bdi>session") || record.contains("sign"),
        "the sign-in is audited: {record}"
    );
    let none = operator.post("/runs/bulk", &form[..3]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    // A single run needs no confirmation.
    let one = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let form = [("csrf", csrf.as_str()), ("act", "cancel"), ("back", "/runs"), ("run", one.as_str())];
    let answer = operator.post("/runs/bulk", &form).await;
    assert_eq!(location(&answer), "/runs?done=bulk-cancel&count=1&of=1");
}

async fn dead_letters_are_replayed_individually_and_all(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let reader = server.reader();
    populate(&server).await;
    for id in ["letter-2", "letter-3", "letter-4"] {
        dead_letter(&server, id).await;
    }
    let path = "/queues/work-items/replay";
    let one =
        reader.post(path, &[("which", "some"), ("id", "letter-2"), ("back", "/queues/work-items")]).await;
    assert_eq!(location(&one), "/queues/work-items?done=bulk-replay&count=1&of=1");
    let page = reader.page("/queues/work-items").await;
    assert!(page.contains("value=\"letter-3\"") && !page.contains("value=\"letter-2\""), "{page}");
    let none = reader.post(path, &[("which", "some")]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let form = [("which", "all"), ("back", "/queues/work-items")];
    let page = confirmation_page(reader.post(path, &form).await).await;
    assert!(
        page.contains("Replay 3 dead letters?") && page.contains("<b>3</b> of <bdi>stones</bdi>"),
        "{page}"
    );
    assert!(page.contains("tidemill queue replay work-items --all"), "{page}");
    assert!(
        reader.page("/queues/work-items").await.contains("value=\"letter-3\""),
        "nothing is replayed yet"
    );
    let all = reader.post(path, &confirmed(&form)).await;
    assert_eq!(location(&all), "/queues/work-items?done=bulk-replay&count=3&of=3");
    assert!(reader.page("/queues/work-items").await.contains("There are no dead letters."));
}

async fn token_secret_is_shown_once_and_token_is_revoked(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let admin = server.signed_in(Role::Admin, None).await;
    let csrf = admin.csrf().await;
    let form = [("csrf", csrf.as_str()), ("name", "for <ann>"), ("role", "viewer"), ("days", "30")];
    let made = admin.post("/tokens", &form).await;
    assert_eq!(
        (made.status(), &made.headers()["cache-control"]),
        (StatusCode::OK, &"no-store".parse().expect("a value"))
    );
    let page = made.text().await.expect("a text");
    let secret = page.split(['<', '>']).find(|text| text.starts_with("tm_")).expect("the secret").to_owned();
    let list = admin.page("/tokens").await;
    assert!(!list.contains(&secret) && list.contains("for &lt;ann&gt;"));
    let ann = server.reader();
    let signed_in = ann.post("/sign-in", &[("token", &secret), ("next", "/")]).await;
    assert_eq!(signed_in.status(), StatusCode::SEE_OTHER);
    let (_, rest) = list.split_once("for &lt;ann&gt;").expect("the token is listed");
    let id = rest.split(['<', '>']).find(|text| text.len() == 36).expect("its id");
    let (path, form) = (format!("/tokens/{id}/revoke"), [("csrf", csrf.as_str()), ("back", "/tokens")]);
    let page = confirmation_page(admin.post(&path, &form).await).await;
    assert!(page.contains("Revoke 1 token?") && page.contains("for &lt;ann&gt;"), "{page}");
    assert!(page.contains("Users who signed in with it are signed out"), "{page}");
    assert_eq!(
        ann.post("/sign-in", &[("token", &secret), ("next", "/")]).await.status(),
        StatusCode::SEE_OTHER
    );
    let unknown = "/tokens/00000000-0000-4000-8000-000000000000/revoke";
    assert_eq!(admin.post(unknown, &form).await.status(), StatusCode::NOT_FOUND);
    let revoked = admin.post(&path, &confirmed(&form)).await;
    assert_eq!(location(&revoked), "/tokens?done=revoked");
    assert!(admin.page("/tokens").await.contains("revoked"));
}

async fn flags_and_schedules_are_paused_and_resumed(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    populate(&server).await;
    let reader = server.reader();
    let set = reader
        .post(
            "/flags",
            &[("scope", "project:shop"), ("note", "a deploy"), ("lasts", "1h"), ("back", "/flags")],
        )
        .await;
    assert_eq!(location(&set), "/flags?done=paused");
    let page = reader.page("/flags").await;
    assert!(
        page.contains("project:shop") && page.contains("a deploy") && page.contains("in 59 min"),
        "{page}"
    );
    let clear = reader
        .post("/flags/clear", &[("scope", "project:shop"), ("flag", "paused"), ("back", "/flags")])
        .await;
    assert_eq!(location(&clear), "/flags?done=resumed");
    let again = reader
        .post("/flags/clear", &[("scope", "project:shop"), ("flag", "paused"), ("back", "/flags")])
        .await;
    assert_eq!(location(&again), "/flags?done=not-paused");
    let resumed = reader.post("/schedules/nightly/resume", &[("back", "/schedules")]).await;
    assert_eq!(location(&resumed), "/schedules?done=resumed");
    assert!(!reader.page("/schedules").await.contains("paused"));
}

async fn rule_tester_shows_matching_rule_and_is_not_audited(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    populate(&server).await;
    let viewer = server.signed_in(Role::Viewer, None).await;
    let page = viewer.page("/feeds/stones?price=1250&carats=1.25&shape=OVAL").await;
    assert!(page.contains("matches: ×1.15, retail price <b>$1,437.50</b>"), "{page}");
    let page = viewer.page("/feeds/stones?price=12.345&carats=1").await;
    assert!(page.contains("The price must be a number with at most two decimals."), "{page}");
    let admin = server.signed_in(Role::Admin, None).await;
    assert!(!admin.page("/audit").await.contains("rules.test"));
}

async fn worker_drain_and_undo_are_audited(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    populate(&server).await;
    let worker = server.fixture.store.workers().await.expect("workers")[0].worker_id;
    let path = format!("/workers/{worker}/drain");
    let operator = server.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let form = |draining| [("csrf", csrf.as_str()), ("draining", draining), ("back", "/workers")];
    assert!(operator.page("/workers").await.contains(&format!("action=\"{path}\"")));
    assert_eq!(
        operator.post(&path, &form("yes")[1..]).await.status(),
        StatusCode::FORBIDDEN,
        "no CSRF token"
    );
    assert_eq!(operator.post(&path, &form("maybe")).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let viewer = server.signed_in(Role::Viewer, None).await;
    let viewer_form =
        [("csrf", &*viewer.csrf().await), ("draining", "yes")].map(|(name, value)| (name, value.to_owned()));
    let viewer_form: Vec<(&str, &str)> =
        viewer_form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(viewer.post(&path, &viewer_form).await.status(), StatusCode::FORBIDDEN);
    let of_shop = server.signed_in(Role::Operator, Some("shop")).await;
    assert!(!of_shop.page("/workers").await.contains("/drain\""), "workers are shared by all projects");
    assert!(!server.fixture.store.is_draining(worker).await.expect("an answer"));

    let drained = operator.post(&path, &form("yes")).await;
    assert_eq!(
        (drained.status(), location(&drained)),
        (StatusCode::SEE_OTHER, "/workers?done=worker-draining")
    );
    let page = operator.page("/workers?done=worker-draining").await;
    assert!(page.contains("gets no new work and exits") && page.contains("Stop draining"), "{page}");
    assert!(page.contains(&format!("tidemill worker drain {worker} --undo")), "{page}");
    assert!(server.fixture.store.is_draining(worker).await.expect("an answer"));
    let back = operator.post(&path, &form("no")).await;
    assert_eq!(location(&back), "/workers?done=worker-not-draining");
    assert!(!server.fixture.store.is_draining(worker).await.expect("an answer"));
    let gone = operator.post("/workers/00000000-0000-4000-8000-000000000000/drain", &form("yes")).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let record = server.signed_in(Role::Admin, None).await.page("/audit").await;
    let applied = "<code><bdi>workers.drain</bdi></code></td><td>applied</td>";
    assert_eq!(record.matches(applied).count(), 2, "{record}");
}
