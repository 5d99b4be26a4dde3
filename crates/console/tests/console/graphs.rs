//! Graphs, jobs and agents: what their pages show, to whom they offer what, and what their forms do.

use crate::driver::{Browser, Wish};
use crate::furnish::NASTY_NAME;
use crate::house::House;
use crate::pages::{changing, check_inert};
use crate::site::{Site, furnish_graph, graphs, submit};
use crate::sizes::{fits, photograph};
use reqwest::StatusCode;
use serde_json::json;
use std::fmt::Write as _;
use tidemill_core::access::Role;
use tidemill_core::job::StatusCode as Code;
use tidemill_core::task::job_id;
use tidemill_core::{RunId, run::RunState};
use tidemill_testkit::door::Kind;

on_both! {
    a_graph_shows_every_job_and_a_viewer_is_offered_nothing,
    what_agents_say_is_shown_and_nothing_of_it_is_obeyed,
    a_job_shows_its_tries_its_output_and_what_it_left,
    jobs_are_stopped_one_by_one_and_together_and_run_again,
    agents_are_drained_and_forgotten_pools_sized_and_a_restart_prepared_for,
    a_large_graph_is_drawn_by_its_layers_and_its_table_has_pages,
    the_page_of_two_hundred_jobs_is_small,
    a_graph_goes_on_to_its_end_before_ones_eyes,
    runs_are_found_by_the_name_of_their_graph,
}

const NAMES: [&str; 6] = ["good", "bad", "runs", "waits", "skipped", "pooled"];

fn place(answer: &reqwest::Response) -> &str {
    answer.headers()["location"].to_str().expect("a text")
}

/// The pages of a graph and of everything around it.
fn paths(run: &RunId) -> Vec<String> {
    let mut paths = vec!["/".to_owned(), "/runs".to_owned(), "/agents".to_owned(), "/flags".to_owned()];
    paths.extend([
        format!("/runs/{run}"),
        format!("/runs/{run}?state=failed"),
        format!("/runs/{run}?from=2"),
    ]);
    for name in NAMES {
        paths.push(format!("/jobs/{}", job_id(run, name)));
        paths.push(format!("/jobs/{}/tail?attempt=1&after=-1", job_id(run, name)));
    }
    paths
}

async fn a_graph_shows_every_job_and_a_viewer_is_offered_nothing(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let (run, _robot) = furnish_graph(&house).await;
    let mut forms = 0;
    for role in [Role::Viewer, Role::Operator] {
        let reader = house.signed_in(role, None).await;
        for path in paths(&run) {
            let page = reader.page(&path).await;
            check_inert(&path, &page);
            for form in changing(&page) {
                assert!(form.contains("name=\"csrf\" value=\""), "{path}: {form}");
                let is_own = form.contains("action=\"/sign-out\"");
                assert!(is_own || role != Role::Viewer, "{path} offers a viewer {form}");
                forms += usize::from(!is_own);
            }
            assert!(page.len() < 300_000, "{path}: {} bytes", page.len());
        }
    }
    assert!(forms >= 15, "only {forms} forms were looked at");
    let page = house.signed_in(Role::Viewer, None).await.page(&format!("/runs/{run}")).await;
    for name in NAMES {
        assert!(page.contains(&format!("href=\"/jobs/{}\"", job_id(&run, name))), "{name}: {page}");
    }
    assert!(page.contains("3 of 6 jobs done") && page.contains("2 failed"), "{page}");
    assert!(
        page.contains("waits is waiting on dependencies after good, runs"),
        "the picture in words: {page}"
    );
    let failed = house.signed_in(Role::Viewer, None).await.page(&format!("/runs/{run}?state=failed")).await;
    let (_, table) = failed.split_once("id=\"jobs\"").expect("the table");
    let (table, _) = table.split_once("</section>").expect("its end");
    assert!(table.contains(">bad<") && table.contains(">skipped<") && !table.contains(">good<"), "{table}");
}

async fn what_agents_say_is_shown_and_nothing_of_it_is_obeyed(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let (run, _robot) = furnish_graph(&house).await;
    let by = Some(NASTY_NAME.to_owned());
    graphs(&house).prepare_for_reboot(by.as_deref(), NASTY_NAME).await.expect("it is prepared for");
    let reader = house.signed_in(Role::Operator, None).await;
    let shown = "&lt;/td&gt;&lt;script&gt;alert('x')&lt;/script&gt;";
    let bad = format!("/jobs/{}", job_id(&run, "bad"));
    let pages = [
        ("/agents".to_owned(), shown),
        ("/flags".to_owned(), shown),
        (bad.clone(), shown),
        (bad.clone(), "⟨ESC⟩[31m⟨U+202E⟩txt.exe"),
        (format!("{bad}/tail?attempt=1&after=-1"), "⟨ESC⟩[31m⟨U+202E⟩txt.exe"),
        (format!("/jobs/{}", job_id(&run, "good")), "&lt;b&gt;file.txt"),
        (format!("/runs/{run}"), shown),
    ];
    for (path, seen) in pages {
        let page = reader.page(&path).await;
        assert!(page.contains(seen), "{path} does not show {seen}: {page}");
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{path}");
        assert!(!page.contains("href=\"javascript:"), "{path}");
        for letter in ['\u{1b}', '\u{202e}', '\0', '\u{9b}'] {
            assert!(!page.contains(letter), "{path} has {letter:?} in it");
        }
    }
}

async fn a_job_shows_its_tries_its_output_and_what_it_left(kind: Kind) {
    let house = House::open_on(kind).await;
    let (run, robot) = furnish_graph(&house).await;
    let reader = house.reader();
    let good = reader.page(&format!("/jobs/{}", job_id(&run, "good"))).await;
    for seen in ["exit code 0", "1,234", &"ab".repeat(32), "first line", "tidemill job show", "Needed by"] {
        assert!(good.contains(seen), "{seen}: {good}");
    }
    assert!(good.contains(&format!("href=\"/jobs/{}\"", job_id(&run, "waits"))), "what needs it: {good}");
    let waits = reader.page(&format!("/jobs/{}", job_id(&run, "waits"))).await;
    assert!(waits.contains("No agent had it yet.") && waits.contains("It wrote nothing yet."), "{waits}");
    assert!(waits.contains(&format!("href=\"/jobs/{}\"", job_id(&run, "good"))), "what it needs: {waits}");
    let tail = |after: i32| format!("/jobs/{}/tail?attempt=1&after={after}", job_id(&run, "runs"));
    assert!(reader.page(&tail(-1)).await.contains("first line"));
    assert!(!reader.page(&tail(0)).await.contains("first line"), "what is known is not said again");
    let agents = reader.page("/agents").await;
    assert!(agents.contains(">runs<") && agents.contains("1 of 3"), "{agents}");
    assert!(agents.contains(&robot.who.agent_id.to_string()));
    assert_eq!(reader.get("/jobs/nonsense").await.status(), StatusCode::NOT_FOUND);
}

async fn jobs_are_stopped_one_by_one_and_together_and_run_again(kind: Kind) {
    let house = House::open_on(kind).await;
    let (run, mut robot) = furnish_graph(&house).await;
    let reader = house.reader();
    let code = async |name: &str| graphs(&house).job_record(&job_id(&run, name)).await.expect("a job").code;
    let back = format!("/runs/{run}");
    let early = reader.post(&format!("/jobs/{}/retry", job_id(&run, "good")), &[]).await;
    assert_eq!(early.status(), StatusCode::CONFLICT, "a graph that has not ended is not tried again");
    let one = reader.post(&format!("/jobs/{}/cancel", job_id(&run, "pooled")), &[("back", &back)]).await;
    assert_eq!(place(&one), format!("{back}?done=job-cancelled"));
    robot.act().await;
    assert_eq!(code("pooled").await, Code::CancelledByUser);
    let form = [("act", "cancel"), ("job", "waits"), ("job", "good"), ("back", back.as_str())];
    let asked = reader.post(&format!("/graphs/{run}/jobs"), &form).await;
    assert_eq!(asked.status(), StatusCode::OK);
    let asked = asked.text().await.expect("a text");
    assert!(asked.contains("Cancel 2 jobs?") && asked.contains("<b>1 job</b> ended before"), "{asked}");
    assert!(asked.contains(&format!("tidemill graph cancel {run} --job waits --job good")), "{asked}");
    assert!(!code("waits").await.is_terminal(), "a question changes nothing");
    let meant = [&form[..], &[("sure", "yes")]].concat();
    let some = reader.post(&format!("/graphs/{run}/jobs"), &meant).await;
    assert_eq!(place(&some), format!("{back}?done=bulk-stop&count=1&of=2"));
    let none = reader.post(&format!("/graphs/{run}/jobs"), &form[..1]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let all = reader.post(&format!("/graphs/{run}/cancel"), &[("reason", "enough"), ("back", &back)]).await;
    assert_eq!(place(&all), format!("{back}?done=graph-cancelled"));
    robot.act().await;
    assert_eq!((code("runs").await, code("waits").await), (Code::CancelledByUser, Code::CancelledByUser));
    assert!(house.engine().run(&run).await.expect("a run").status.is_terminal());
    let again = reader.post(&format!("/graphs/{run}/retry"), &[]).await;
    let next = place(&again).to_owned();
    assert!(next.starts_with("/runs/run-") && next.ends_with("?done=retried"), "{next}");
    assert!(reader.page(&next).await.contains("1 reused"), "what succeeded is taken over");
}

async fn agents_are_drained_and_forgotten_pools_sized_and_a_restart_prepared_for(kind: Kind) {
    let house = House::open_on(kind).await;
    let (_run, mut robot) = furnish_graph(&house).await;
    let reader = house.reader();
    let agent = robot.who.agent_id;
    let back = ("back", "/agents");
    let drained = reader.post(&format!("/agents/{agent}/drain"), &[("draining", "yes"), back]).await;
    assert_eq!(place(&drained), "/agents?done=draining");
    assert!(reader.page("/agents").await.contains("Give it tasks again"));
    let set = reader.post("/pools", &[("name", "deploys"), ("size", "7"), back]).await;
    assert_eq!(place(&set), "/agents?done=pool-set");
    assert!(reader.page("/agents").await.contains("deploys"));
    let wrong = reader.post("/pools", &[("name", "deploys"), ("size", "many"), back]).await;
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let removed = reader.post("/pools/remove", &[("name", "deploys"), back]).await;
    assert_eq!(place(&removed), "/agents?done=pool-removed");
    let page = reader.page("/agents").await;
    assert!(!page.contains("value=\"deploys\"") && page.contains("not prepared"), "{page}");
    reader.post("/reboot", &[("note", "new <kernel>"), back]).await;
    robot.act().await;
    let page = reader.page("/agents").await;
    assert!(page.contains("not safe yet") && page.contains("new &lt;kernel&gt;"), "{page}");
    assert!(!page.contains(">safe<"), "something runs: {page}");
    let unsure = reader.post(&format!("/agents/{agent}/forget"), &[back]).await;
    assert_eq!(unsure.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let alive = reader.post(&format!("/agents/{agent}/forget"), &[("sure", "yes"), back]).await;
    assert_eq!(alive.status(), StatusCode::CONFLICT, "it was heard just now");
    let forced = [("sure", "yes"), ("force", "yes"), back];
    let sure = reader.post(&format!("/agents/{agent}/forget"), &forced).await;
    assert_eq!(place(&sure), "/agents?done=forgotten");
    robot.act().await;
    assert!(reader.page("/agents").await.contains(">safe<"), "nothing of it runs any more");
    assert_eq!(place(&reader.post("/reboot/over", &[back]).await), "/agents?done=reboot-over");
    let flag = [("flag", "maintenance"), ("scope", "site"), ("note", "vacuum"), ("lasts", "1h"), back];
    assert_eq!(place(&reader.post("/flags", &flag).await), "/agents?done=flag-set");
    let page = reader.page("/agents").await;
    assert!(page.contains("maintenance") && page.contains("vacuum") && page.contains("ends "), "{page}");
}

async fn a_large_graph_is_drawn_by_its_layers_and_its_table_has_pages(kind: Kind) {
    let house = House::open_on(kind).await;
    let mut text = String::from("version: 1\njobs:\n");
    for job in 0..1_200 {
        let _ = writeln!(text, "  job-{job:04}:\n    run: work");
    }
    let large = submit(&house, &text).await;
    let cut: String = text.lines().take(2 + 2 * 300).fold(String::new(), |all, line| all + line + "\n");
    let middle = submit(&house, &cut).await;
    let reader = house.reader();
    let page = reader.page(&format!("/runs/{large}")).await;
    assert!(page.contains("Jobs by state") && page.contains("all jobs: 1,200 waiting"), "{page}");
    let page = reader.page(&format!("/runs/{middle}")).await;
    assert!(page.contains("Jobs by layer") && page.contains("layer 1: 300 waiting"), "{page}");
    for run in [large, middle] {
        let mut path = format!("/runs/{run}?state=pending");
        for first in ["job-0000", "job-0050", "job-0100"] {
            let page = reader.page(&path).await;
            assert!(
                page.contains(&format!(">{first}<")) && page.len() < 300_000,
                "{path}: {} bytes",
                page.len()
            );
            let (before, _) = page.split_once("#jobs\">Next</a>").expect("there is more");
            let link = before.rsplit_once("href=\"").expect("a link").1.replace("&amp;", "&");
            path.clone_from(&link);
        }
    }
}

async fn the_page_of_two_hundred_jobs_is_small(kind: Kind) {
    let house = House::open_on(kind).await;
    let mut text = String::from("version: 1\njobs:\n");
    for job in 0..200_usize {
        let _ = writeln!(text, "  a-job-with-a-rather-long-name-{job:04}:\n    run: work");
        if let Some(above) = job.checked_sub(10) {
            let needs = format!("a-job-with-a-rather-long-name-{above:04}");
            let _ = writeln!(text, "    needs: [{needs}]");
        }
    }
    let run = submit(&house, &text).await;
    let page = house.reader().page(&format!("/runs/{run}")).await;
    assert_eq!(page.matches("class=\"node n-waiting\"").count(), 200);
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

async fn a_graph_goes_on_to_its_end_before_ones_eyes(kind: Kind) {
    let house = House::open_on(kind).await;
    let dir = tempfile::tempdir().expect("a folder");
    let gate = dir.path().join("gate");
    let text = format!(
        "version: 1\nname: before-ones-eyes\njobs:\n  first:\n    run: echo '<b>hello</b>'\n  second:\n    \
         needs: first\n    run: echo waiting; until test -e {}; do sleep 0.1; done; echo through\n  third:\n    \
         needs: second\n    run: exit 4\n",
        gate.display()
    );
    let run = submit(&house, &text).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.sees("#graph", "0 of 3 jobs done").await;
    browser.sees("#live", "Live").await;
    // A page that was loaded again would have forgotten this.
    browser.run("window.kept = true").await;
    let site = Site::start(&house);
    browser.sees("#graph svg .n-succeeded .name", "first").await;
    browser.sees("#graph svg .n-running .name", "second").await;
    let job = job_id(&run, "second");
    browser.sees(&format!("#jobs tr[data-key='{job}']"), "agent-1").await;
    let asked = browser
        .run("return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length")
        .await;
    photograph(&browser, "wide-light-graph-running").await;
    // The page of a job follows its output.
    browser.go(&house.url(&format!("/jobs/{job}"))).await;
    browser.sees("#head .state", "executing").await;
    browser.sees("#log ol", "waiting").await;
    browser.run("window.kept = true").await;
    std::fs::write(&gate, "").expect("the gate is opened");
    browser.sees("#log ol", "through").await;
    browser.sees("#head .state", "succeeded").await;
    assert_eq!(browser.run("return window.kept").await, json!(true));
    photograph(&browser, "wide-light-job").await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.sees("#head .state", "failed").await;
    browser.sees("#graph svg .n-failed .name", "third").await;
    browser.sees("#graph", "3 of 3 jobs done").await;
    browser.sees("#jobs", "its command ended with 4").await;
    assert!(asked.as_i64().is_some_and(|asked| asked < 60), "the page asked {asked} times");
    browser.click("#head form button.main").await;
    browser.sees(".flash", "Another try was queued. This is it.").await;
    browser.sees("#graph svg .n-reused .name", "first").await;
    browser.sees("#head .state", "failed").await;
    browser.go(&house.url("/agents")).await;
    browser.sees("#agents", "agent-1").await;
    photograph(&browser, "wide-light-agents").await;
    browser.is_content().await;
    site.stop().await;
    assert_eq!(house.engine().run(&run).await.expect("a run").status, RunState::Failed);
}

/// The text stands in the address and in the form, and what is brought up to date later is asked for in the same way.
async fn runs_are_found_by_the_name_of_their_graph(kind: Kind) {
    let house = House::guarded_on(kind).await;
    let text = |name: &str| format!("version: 1\nname: {name}\njobs:\n  one: {{run: work}}\n");
    let nightly = submit(&house, &text("Nightly build")).await;
    let weekly = submit(&house, &text("Weekly build")).await;
    let viewer = house.signed_in(Role::Viewer, None).await;
    let row = |run: &RunId| format!("data-key=\"{run}\"");
    let page = viewer.page("/runs?find=Nightly+b&by=name").await;
    assert!(page.contains(&row(&nightly)) && !page.contains(&row(&weekly)), "{page}");
    assert!(page.contains("value=\"Nightly b\"") && page.contains("value=\"name\" selected"), "{page}");
    let none = viewer.page("/runs?find=build&by=name").await;
    assert!(none.contains("No run fits this filter") && !none.contains(&row(&nightly)), "{none}");
    let long = viewer.page(&format!("/runs?find={}&by=name", "n".repeat(129))).await;
    assert!(long.contains("role=\"alert\"") && !long.contains(&row(&nightly)), "{long}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_graphs_fit_a_wide_and_a_narrow_screen() {
    let house = House::open().await;
    let (run, _robot) = furnish_graph(&house).await;
    let pages = [
        ("graph", format!("/runs/{run}")),
        ("job-good", format!("/jobs/{}", job_id(&run, "good"))),
        ("job-bad", format!("/jobs/{}", job_id(&run, "bad"))),
        ("agents", "/agents".to_owned()),
        ("flags-of-the-site", "/flags".to_owned()),
    ];
    let browser = Browser::open(&Wish::default()).await;
    for (name, path) in &pages {
        browser.go(&house.url(path)).await;
        fits(&browser, name).await;
    }
}
