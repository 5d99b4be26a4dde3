//! Forms: signing in and out, what is forged, what they do, and that it is on record.

use crate::furnish::{claim, dead_letter, furnish};
use crate::house::House;
use crate::pages::check_inert;
use reqwest::{Method, StatusCode};
use tidemill_core::access::Role;
use tidemill_core::run::{ClaimRuns, Holder, QueueRun, RunState};
use tidemill_testkit::door::Kind;

on_both! {
    whoever_is_not_signed_in_is_asked_to_and_comes_back,
    a_token_for_machines_is_refused_with_a_sentence_where_one_signs_in,
    a_sign_in_that_another_page_sends_is_refused,
    whoever_signs_out_is_out,
    a_form_without_what_ours_carry_changes_nothing,
    an_open_house_takes_no_form_from_another_page,
    a_viewer_who_sends_a_form_all_the_same_is_refused,
    a_stalled_run_is_failed_by_a_form_with_or_without_a_successor,
    several_runs_are_cancelled_and_retried_at_once_and_all_of_it_is_on_record,
    dead_letters_are_replayed_one_some_and_all,
    a_token_is_made_its_secret_is_shown_once_and_it_is_taken_back,
    flags_and_schedules_are_held_and_let_go,
    which_rule_would_price_a_stone_is_told_and_is_nothing_for_the_record,
    a_worker_is_drained_and_put_to_work_again_and_both_are_on_record,
    a_form_that_is_refused_leads_back_with_what_was_written,
}

fn place(answer: &reqwest::Response) -> &str {
    answer.headers()["location"].to_str().expect("a text")
}

/// The page that asks whether something is meant.
async fn asked(answer: reqwest::Response) -> String {
    assert_eq!(answer.status(), StatusCode::OK);
    let page = answer.text().await.expect("a text");
    assert!(page.contains("id=\"confirm\"") && page.contains("name=\"sure\" value=\"yes\""), "{page}");
    check_inert("a question", &page);
    page
}

/// The same form, meant.
fn meant<'a>(form: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [form, &[("sure", "yes")]].concat()
}

async fn a_form_that_is_refused_leads_back_with_what_was_written(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let admin = house.signed_in(Role::Admin, None).await;
    let csrf = admin.csrf().await;
    let form =
        [("csrf", csrf.as_str()), ("back", "/agents?done=pool-set"), ("name", "na\"rrow"), ("size", "wide")];
    let refused = admin.post("/pools", &form).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let page = refused.text().await.expect("a text");
    let back = "/agents?kept-name=na%22rrow&amp;kept-size=wide";
    assert!(page.contains(&format!("href=\"{back}\"")), "{page}");
    assert!(!page.contains(&csrf), "{page}");
    check_inert("a refusal", &page);
    let page = admin.page(&back.replace("&amp;", "&")).await;
    assert!(page.contains("value=\"na&quot;rrow\"") && page.contains("value=\"wide\""), "{page}");
    let form = [("csrf", csrf.as_str()), ("back", "/flags"), ("scope", "project:none"), ("note", "a deploy")];
    let refused = admin.post("/flags", &form).await;
    assert!(refused.status().is_client_error(), "{refused:?}");
    let page = refused.text().await.expect("a text");
    assert!(page.contains("href=\"/flags?kept-scope=project%3Anone&amp;kept-note=a+deploy\""), "{page}");
    assert!(admin.page("/flags?kept-note=a+deploy").await.contains("value=\"a deploy\""));
    // What is done in the end leads back without it.
    let form =
        [("csrf", csrf.as_str()), ("back", "/agents?kept-name=wrong"), ("name", "narrow"), ("size", "2")];
    assert_eq!(place(&admin.post("/pools", &form).await), "/agents?done=pool-set");
    // A page that is not there has no form to go back to.
    let lost = admin.get("/runs/nonsense").await.text().await.expect("a text");
    assert!(!lost.contains("Back to where it was"), "{lost}");
}

async fn whoever_is_not_signed_in_is_asked_to_and_comes_back(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let stranger = house.reader();
    let answer = stranger.get("/runs?status=failed").await;
    assert_eq!(
        (answer.status(), place(&answer)),
        (StatusCode::SEE_OTHER, "/sign-in?next=%2Fruns%3Fstatus%3Dfailed")
    );
    let page = stranger.page("/sign-in?next=%2Fruns%3Fstatus%3Dfailed").await;
    assert!(page.contains("name=\"next\" value=\"/runs?status=failed\""));
    let wrong = stranger.post("/sign-in", &[("token", "tm_wrong"), ("next", "/runs")]).await;
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    assert!(wrong.text().await.expect("a text").contains("Nobody knows this token."));
    let token = house.token(Role::Viewer, None).await;
    let elsewhere = stranger.post("/sign-in", &[("token", &token), ("next", "//evil.example/")]).await;
    assert_eq!(place(&elsewhere), "/");
    let cookie = elsewhere.headers()["set-cookie"].to_str().expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    assert!(!cookie.contains(&token), "the token itself is no cookie");
}

async fn a_token_for_machines_is_refused_with_a_sentence_where_one_signs_in(kind: Kind) {
    let house = House::guarded_on(kind).await;
    for role in [Role::Worker, Role::Agent] {
        let token = house.token(role, None).await;
        let refused = house.reader().post("/sign-in", &[("token", &token), ("next", "/")]).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert!(refused.headers().get("set-cookie").is_none(), "no session is opened");
        let page = refused.text().await.expect("a text");
        assert!(
            page.contains(&format!("A token of role {role} is for machines, and sees no page")),
            "{page}"
        );
        assert!(page.contains("name=\"token\""), "another token can be given: {page}");
    }
}

async fn a_sign_in_that_another_page_sends_is_refused(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let token = house.token(Role::Viewer, None).await;
    let send = |origin: String| {
        let form = [("token", token.as_str()), ("next", "/")].map(|(name, value)| (name, value.to_owned()));
        house.reader().ask(Method::POST, "/sign-in").header("origin", origin).form(&form).send()
    };
    let forged = send("https://evil.example".to_owned()).await.expect("an answer");
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    assert!(forged.headers().get("set-cookie").is_none(), "nobody is signed in");
    let ours = send(house.url("")).await.expect("an answer");
    assert!(ours.status() == StatusCode::SEE_OTHER && ours.headers().contains_key("set-cookie"));
}

async fn whoever_signs_out_is_out(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let reader = house.signed_in(Role::Viewer, None).await;
    let csrf = reader.csrf().await;
    let forged = reader.post("/sign-out", &[("csrf", "no")]).await;
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let out = reader.post("/sign-out", &[("csrf", &csrf)]).await;
    assert_eq!((out.status(), place(&out)), (StatusCode::SEE_OTHER, "/sign-in"));
    assert_eq!(reader.get("/runs").await.status(), StatusCode::SEE_OTHER);
}

async fn a_form_without_what_ours_carry_changes_nothing(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let operator = house.signed_in(Role::Operator, None).await;
    let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let path = format!("/runs/{run}/cancel");
    let csrf = operator.csrf().await;
    for form in [vec![], vec![("csrf", "wrong")], vec![("csrf", "")]] {
        assert_eq!(operator.post(&path, &form).await.status(), StatusCode::FORBIDDEN, "{form:?}");
    }
    let from_elsewhere = operator
        .ask(Method::POST, &path)
        .header("origin", "https://evil.example")
        .form(&[("csrf", csrf.as_str())])
        .send()
        .await
        .expect("an answer");
    assert_eq!(from_elsewhere.status(), StatusCode::FORBIDDEN);
    assert_eq!(house.engine().run(&run).await.expect("a run").status, RunState::Queued);
    let ours = operator.post(&path, &[("csrf", &csrf), ("reason", "no need"), ("back", "/runs")]).await;
    assert_eq!((ours.status(), place(&ours)), (StatusCode::SEE_OTHER, "/runs?done=cancelled"));
    let found = house.engine().run(&run).await.expect("a run");
    assert_eq!((found.status, found.cancel_reason.as_deref()), (RunState::Cancelled, Some("no need")));
}

async fn a_stalled_run_is_failed_by_a_form_with_or_without_a_successor(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let operator = house.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let engine = house.engine();
    for retry in [false, true] {
        let run = engine.queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
        let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
        engine.claim(ask).await.expect("it is claimed");
        engine.start(&run, &Holder::default()).await.expect("it starts");
        let path = format!("/runs/{run}");
        let page = operator.page(&path).await;
        assert!(!page.contains("Fail the run") && !page.contains("s-stalled"), "{page}");
        let later = engine.store().now(None).await.expect("a time") + chrono::TimeDelta::minutes(6);
        engine.store().sweep(100, 3_600.0, Some(later)).await.expect("it is swept");
        let page = operator.page(&path).await;
        for shown in ["s-stalled", "It is stalled: worker", "Fail the run", "Fail it and queue a successor"] {
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
        assert_eq!((next.is_some(), place(&answer)), (retry, expected.as_str()));
    }
    let admin = house.signed_in(Role::Admin, None).await;
    assert!(admin.page("/audit").await.contains("/fail"), "the decision is on record");
}

async fn an_open_house_takes_no_form_from_another_page(kind: Kind) {
    let house = House::open_on(kind).await;
    let reader = house.reader();
    let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let path = format!("/runs/{run}/cancel");
    let send = |origin: String| {
        reader.ask(Method::POST, &path).header("origin", origin).form(&[("back", "/")]).send()
    };
    let forged = send("https://evil.example".to_owned()).await.expect("an answer");
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    let ours = send(house.url("")).await.expect("an answer");
    assert_eq!(ours.status(), StatusCode::SEE_OTHER);
    assert!(!reader.page("/").await.contains("Sign out"), "there is nothing to sign out of");
}

async fn a_viewer_who_sends_a_form_all_the_same_is_refused(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let things = furnish(&house).await;
    let viewer = house.signed_in(Role::Viewer, None).await;
    let csrf = viewer.csrf().await;
    for path in [
        format!("/runs/{}/cancel", things.queued),
        format!("/runs/{}/fail", things.queued),
        format!("/runs/{}/retry", things.failed),
        "/feeds/stones/sync".to_owned(),
        "/feeds/stones/resume".to_owned(),
        "/schedules/nightly/resume".to_owned(),
    ] {
        let answer = viewer.post(&path, &[("csrf", &csrf)]).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let bulk = [("csrf", csrf.as_str()), ("act", "cancel"), ("run", things.queued.as_str())];
    assert_eq!(viewer.post("/runs/bulk", &bulk).await.status(), StatusCode::FORBIDDEN);
    let replay = [("csrf", csrf.as_str()), ("which", "all")];
    assert_eq!(viewer.post("/queues/work-items/replay", &replay).await.status(), StatusCode::FORBIDDEN);
    let token = [("csrf", csrf.as_str()), ("name", "mine"), ("role", "admin")];
    assert_eq!(viewer.post("/tokens", &token).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(house.engine().run(&things.queued).await.expect("a run").status, RunState::Queued);
}

async fn several_runs_are_cancelled_and_retried_at_once_and_all_of_it_is_on_record(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let operator = house.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id);
    }
    let held = claim(&house, &runs[0], "w").await;
    crate::furnish::finish(
        &house,
        &runs[0],
        &held,
        tidemill_core::run::FinalStatus::Success,
        serde_json::json!({}),
    )
    .await;
    let mut form = vec![("csrf", csrf.as_str()), ("act", "cancel"), ("back", "/runs?status=queued")];
    form.extend(runs.iter().map(|run| ("run", run.as_str())));
    let page = asked(operator.post("/runs/bulk", &form).await).await;
    for words in
        ["Cancel 3 runs?", "<b>2</b> wait, and end at once.", "<b>1</b> has ended: nothing happens to it."]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert_eq!(page.matches("name=\"run\"").count(), 3, "{page}");
    assert!(page.contains("href=\"/runs?status=queued\"") && page.contains("name=\"csrf\""), "{page}");
    assert!(page.contains(&format!("tidemill run cancel {}", runs[1])), "{page}");
    let found = house.engine().run(&runs[1]).await.expect("a run");
    assert_eq!(found.status, RunState::Queued, "a question changes nothing");
    let answer = operator.post("/runs/bulk", &meant(&form)).await;
    assert_eq!(place(&answer), "/runs?status=queued&done=bulk-cancel&count=2&of=3");
    let page = operator.page("/runs?status=queued&done=bulk-cancel&count=2&of=3").await;
    assert!(page.contains("2 of 3 cancelled or asked to stop."), "{page}");
    form[1] = ("act", "retry");
    let page = asked(operator.post("/runs/bulk", &form).await).await;
    assert!(page.contains("Retry 3 runs?") && page.contains("<b>2</b> failed or were cancelled"), "{page}");
    assert!(page.contains("<b>1</b> succeeded: nothing happens to it."), "{page}");
    let answer = operator.post("/runs/bulk", &meant(&form)).await;
    assert_eq!(place(&answer), "/runs?status=queued&done=bulk-retry&count=2&of=3");
    let admin = house.signed_in(Role::Admin, None).await;
    let record = admin.page("/audit").await;
    assert_eq!(record.matches("<code><bdi>runs.retry</bdi></code>").count(), 2, "{record}");
    assert!(
        record.contains("<code><bdi>session") || record.contains("sign"),
        "signing in is on record: {record}"
    );
    let none = operator.post("/runs/bulk", &form[..3]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    // One run needs no question.
    let one = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let form = [("csrf", csrf.as_str()), ("act", "cancel"), ("back", "/runs"), ("run", one.as_str())];
    let answer = operator.post("/runs/bulk", &form).await;
    assert_eq!(place(&answer), "/runs?done=bulk-cancel&count=1&of=1");
}

async fn dead_letters_are_replayed_one_some_and_all(kind: Kind) {
    let house = House::open_on(kind).await;
    let reader = house.reader();
    furnish(&house).await;
    for id in ["letter-2", "letter-3", "letter-4"] {
        dead_letter(&house, id).await;
    }
    let path = "/queues/work-items/replay";
    let one =
        reader.post(path, &[("which", "some"), ("id", "letter-2"), ("back", "/queues/work-items")]).await;
    assert_eq!(place(&one), "/queues/work-items?done=bulk-replay&count=1&of=1");
    let page = reader.page("/queues/work-items").await;
    assert!(page.contains("value=\"letter-3\"") && !page.contains("value=\"letter-2\""), "{page}");
    let none = reader.post(path, &[("which", "some")]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let form = [("which", "all"), ("back", "/queues/work-items")];
    let page = asked(reader.post(path, &form).await).await;
    assert!(
        page.contains("Replay 3 dead letters?") && page.contains("<b>3</b> of <bdi>stones</bdi>"),
        "{page}"
    );
    assert!(page.contains("tidemill queue replay work-items --all"), "{page}");
    assert!(reader.page("/queues/work-items").await.contains("value=\"letter-3\""), "nothing is sent yet");
    let all = reader.post(path, &meant(&form)).await;
    assert_eq!(place(&all), "/queues/work-items?done=bulk-replay&count=3&of=3");
    assert!(reader.page("/queues/work-items").await.contains("nothing was given up"));
}

async fn a_token_is_made_its_secret_is_shown_once_and_it_is_taken_back(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let admin = house.signed_in(Role::Admin, None).await;
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
    let ann = house.reader();
    let signed_in = ann.post("/sign-in", &[("token", &secret), ("next", "/")]).await;
    assert_eq!(signed_in.status(), StatusCode::SEE_OTHER);
    let (_, rest) = list.split_once("for &lt;ann&gt;").expect("it is listed");
    let id = rest.split(['<', '>']).find(|text| text.len() == 36).expect("its id");
    let (path, form) = (format!("/tokens/{id}/revoke"), [("csrf", csrf.as_str()), ("back", "/tokens")]);
    let page = asked(admin.post(&path, &form).await).await;
    assert!(page.contains("Revoke 1 token?") && page.contains("for &lt;ann&gt;"), "{page}");
    assert!(page.contains("Everybody who signed in with it is signed out"), "{page}");
    assert_eq!(
        ann.post("/sign-in", &[("token", &secret), ("next", "/")]).await.status(),
        StatusCode::SEE_OTHER
    );
    let unknown = "/tokens/00000000-0000-4000-8000-000000000000/revoke";
    assert_eq!(admin.post(unknown, &form).await.status(), StatusCode::NOT_FOUND);
    let revoked = admin.post(&path, &meant(&form)).await;
    assert_eq!(place(&revoked), "/tokens?done=revoked");
    assert!(admin.page("/tokens").await.contains("revoked"));
}

async fn flags_and_schedules_are_held_and_let_go(kind: Kind) {
    let house = House::open_on(kind).await;
    furnish(&house).await;
    let reader = house.reader();
    let set = reader
        .post(
            "/flags",
            &[("scope", "project:shop"), ("note", "a deploy"), ("lasts", "1h"), ("back", "/flags")],
        )
        .await;
    assert_eq!(place(&set), "/flags?done=paused");
    let page = reader.page("/flags").await;
    assert!(
        page.contains("project:shop") && page.contains("a deploy") && page.contains("in 59 min"),
        "{page}"
    );
    let clear = reader
        .post("/flags/clear", &[("scope", "project:shop"), ("flag", "paused"), ("back", "/flags")])
        .await;
    assert_eq!(place(&clear), "/flags?done=resumed");
    let again = reader
        .post("/flags/clear", &[("scope", "project:shop"), ("flag", "paused"), ("back", "/flags")])
        .await;
    assert_eq!(place(&again), "/flags?done=not-paused");
    let resumed = reader.post("/schedules/nightly/resume", &[("back", "/schedules")]).await;
    assert_eq!(place(&resumed), "/schedules?done=resumed");
    assert!(!reader.page("/schedules").await.contains("paused"));
}

async fn which_rule_would_price_a_stone_is_told_and_is_nothing_for_the_record(kind: Kind) {
    let house = House::guarded_on(kind).await;
    furnish(&house).await;
    let viewer = house.signed_in(Role::Viewer, None).await;
    let page = viewer.page("/feeds/stones?price=1250&carats=1.25&shape=OVAL").await;
    assert!(page.contains("prices it: ×1.15, sold for <b>$1,437.50</b>"), "{page}");
    let page = viewer.page("/feeds/stones?price=12.345&carats=1").await;
    assert!(page.contains("The price is a number with at most two decimals."), "{page}");
    let admin = house.signed_in(Role::Admin, None).await;
    assert!(!admin.page("/audit").await.contains("rules.test"));
}

async fn a_worker_is_drained_and_put_to_work_again_and_both_are_on_record(kind: Kind) {
    let house = House::guarded_on(kind).await;
    furnish(&house).await;
    let worker = house.stage.store.workers().await.expect("workers")[0].worker_id;
    let path = format!("/workers/{worker}/drain");
    let operator = house.signed_in(Role::Operator, None).await;
    let csrf = operator.csrf().await;
    let form = |draining| [("csrf", csrf.as_str()), ("draining", draining), ("back", "/workers")];
    assert!(operator.page("/workers").await.contains(&format!("action=\"{path}\"")));
    assert_eq!(operator.post(&path, &form("yes")[1..]).await.status(), StatusCode::FORBIDDEN, "it is forged");
    assert_eq!(operator.post(&path, &form("maybe")).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let viewer = house.signed_in(Role::Viewer, None).await;
    let seen =
        [("csrf", &*viewer.csrf().await), ("draining", "yes")].map(|(name, value)| (name, value.to_owned()));
    let seen: Vec<(&str, &str)> = seen.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(viewer.post(&path, &seen).await.status(), StatusCode::FORBIDDEN);
    let of_shop = house.signed_in(Role::Operator, Some("shop")).await;
    assert!(!of_shop.page("/workers").await.contains("/drain\""), "it is not for one project to say");
    assert!(!house.stage.store.is_draining(worker).await.expect("an answer"));

    let drained = operator.post(&path, &form("yes")).await;
    assert_eq!((drained.status(), place(&drained)), (StatusCode::SEE_OTHER, "/workers?done=worker-draining"));
    let page = operator.page("/workers?done=worker-draining").await;
    assert!(
        page.contains("takes nothing new, and ends once") && page.contains("Let it work again"),
        "{page}"
    );
    assert!(page.contains(&format!("tidemill worker drain {worker} --undo")), "{page}");
    assert!(house.stage.store.is_draining(worker).await.expect("an answer"));
    let back = operator.post(&path, &form("no")).await;
    assert_eq!(place(&back), "/workers?done=worker-not-draining");
    assert!(!house.stage.store.is_draining(worker).await.expect("an answer"));
    let gone = operator.post("/workers/00000000-0000-4000-8000-000000000000/drain", &form("yes")).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let record = house.signed_in(Role::Admin, None).await.page("/audit").await;
    assert_eq!(record.matches("workers.drain").count(), 2, "{record}");
}
