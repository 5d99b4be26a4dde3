//! Pages of graphs, jobs and agents: contents, permissions and forms.

use crate::driver::{Browser, BrowserOptions};
use crate::graph_fixture::{GraphProcesses, graphs, populate_graph, submit};
use crate::pages::{changing, check_inert};
use crate::sample_data::HOSTILE_NAME;
use crate::screen_sizes::{fits, save_screenshot};
use crate::server::ConsoleServer;
use reqwest::StatusCode;
use serde_json::json;
use std::fmt::Write as _;
use tidemill_core::access::Role;
use tidemill_core::job::StatusCode as Code;
use tidemill_core::task::job_id;
use tidemill_core::{RunId, run::RunState};
use tidemill_testkit::interface::Kind;

on_both! {
    graph_page_shows_all_jobs_and_viewer_gets_no_actions,
    hostile_agent_texts_are_escaped,
    job_page_shows_attempts_output_and_files,
    jobs_are_cancelled_and_retried_singly_and_together,
    agent_pool_and_restart_forms_take_effect,
    large_graph_is_drawn_as_layers_with_paged_table,
    page_of_two_hundred_jobs_is_small,
    graph_page_follows_graph_to_its_end,
    runs_are_found_by_graph_name,
}

const NAMES: [&str; 6] = ["good", "bad", "runs", "waits", "skipped", "pooled"];

fn location(answer: &reqwest::Response) -> &str {
    answer.headers()["location"].to_str().expect("a text")
}

/// Paths of the graph's pages and of related ones.
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

async fn graph_page_shows_all_jobs_and_viewer_gets_no_actions(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let (run, _robot) = populate_graph(&server).await;
    let mut forms = 0;
    for role in [Role::Viewer, Role::Operator] {
        let reader = server.signed_in(role, None).await;
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
    assert!(forms >= 15, "only {forms} forms were checked");
    let page = server.signed_in(Role::Viewer, None).await.page(&format!("/runs/{run}")).await;
    for name in NAMES {
        assert!(page.contains(&format!("href=\"/jobs/{}\"", job_id(&run, name))), "{name}: {page}");
    }
    assert!(page.contains("3 of 6 jobs done") && page.contains("2 failed"), "{page}");
    assert!(
        page.contains("waits is waiting on dependencies after good, runs"),
        "the drawing has a text alternative: {page}"
    );
    let failed = server.signed_in(Role::Viewer, None).await.page(&format!("/runs/{run}?state=failed")).await;
    let (_, table) = failed.split_once("id=\"jobs\"").expect("the page has the table");
    let (table, _) = table.split_once("</section>").expect("the panel is closed");
    assert!(table.contains(">bad<") && table.contains(">skipped<") && !table.contains(">good<"), "{table}");
}

async fn hostile_agent_texts_are_escaped(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let (run, _robot) = populate_graph(&server).await;
    let by = Some(HOSTILE_NAME.to_owned());
    graphs(&server).prepare_for_reboot(by.as_deref(), HOSTILE_NAME).await.expect("the restart is prepared");
    let reader = server.signed_in(Role::Operator, None).await;
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
    for (path, expected) in pages {
        let page = reader.page(&path).await;
        assert!(page.contains(expected), "{path} does not show {expected}: {page}");
        assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{path}");
        assert!(!page.contains("href=\"javascript:"), "{path}");
        for letter in ['\u{1b}', '\u{202e}', '\0', '\u{9b}'] {
            assert!(!page.contains(letter), "{path} has {letter:?} in it");
        }
    }
}

async fn job_page_shows_attempts_output_and_files(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let (run, robot) = populate_graph(&server).await;
    let reader = server.reader();
    let good = reader.page(&format!("/jobs/{}", job_id(&run, "good"))).await;
    for expected in [
        "exit code 0",
        "1,234",
        &"ab".repeat(32),
        "first line",
        "tidemill job show",
        "Required by",
        "memory 1GiB, processes 9",
    ] {
        assert!(good.contains(expected), "{expected}: {good}");
    }
    assert!(good.contains(&format!("href=\"/jobs/{}\"", job_id(&run, "waits"))), "its dependent: {good}");
    let waits = reader.page(&format!("/jobs/{}", job_id(&run, "waits"))).await;
    assert!(waits.contains("No attempts yet.") && waits.contains("There is no output yet."), "{waits}");
    assert!(waits.contains(&format!("href=\"/jobs/{}\"", job_id(&run, "good"))), "its dependency: {waits}");
    let tail = |after: i32| format!("/jobs/{}/tail?attempt=1&after={after}", job_id(&run, "runs"));
    assert!(reader.page(&tail(-1)).await.contains("first line"));
    assert!(!reader.page(&tail(0)).await.contains("first line"), "known lines are not sent again");
    let agents = reader.page("/agents").await;
    assert!(agents.contains(">runs<") && agents.contains("1 of 3"), "{agents}");
    assert!(agents.contains(&robot.identity.agent_id.to_string()));
    assert!(agents.contains(">none<") && agents.contains("No PID namespace: "), "{agents}");
    assert_eq!(reader.get("/jobs/nonsense").await.status(), StatusCode::NOT_FOUND);
}

async fn jobs_are_cancelled_and_retried_singly_and_together(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let (run, mut robot) = populate_graph(&server).await;
    let reader = server.reader();
    let code = async |name: &str| graphs(&server).job_record(&job_id(&run, name)).await.expect("a job").code;
    let back = format!("/runs/{run}");
    let early = reader.post(&format!("/jobs/{}/retry", job_id(&run, "good")), &[]).await;
    assert_eq!(early.status(), StatusCode::CONFLICT, "a graph that has not ended cannot be retried");
    let one = reader.post(&format!("/jobs/{}/cancel", job_id(&run, "pooled")), &[("back", &back)]).await;
    assert_eq!(location(&one), format!("{back}?done=job-cancelled"));
    robot.act().await;
    assert_eq!(code("pooled").await, Code::CancelledByUser);
    let form = [("act", "cancel"), ("job", "waits"), ("job", "good"), ("back", back.as_str())];
    let confirmation = reader.post(&format!("/graphs/{run}/jobs"), &form).await;
    assert_eq!(confirmation.status(), StatusCode::OK);
    let confirmation = confirmation.text().await.expect("a text");
    assert!(
        confirmation.contains("Cancel 2 jobs?") && confirmation.contains("<b>1 job</b> already ended"),
        "{confirmation}"
    );
    assert!(
        confirmation.contains(&format!("tidemill graph cancel {run} --job waits --job good")),
        "{confirmation}"
    );
    assert!(!code("waits").await.is_terminal(), "the confirmation page changes nothing");
    let confirmed = [&form[..], &[("sure", "yes")]].concat();
    let some = reader.post(&format!("/graphs/{run}/jobs"), &confirmed).await;
    assert_eq!(location(&some), format!("{back}?done=bulk-stop&count=1&of=2"));
    let none = reader.post(&format!("/graphs/{run}/jobs"), &form[..1]).await;
    assert_eq!(none.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let all = reader.post(&format!("/graphs/{run}/cancel"), &[("reason", "enough"), ("back", &back)]).await;
    assert_eq!(location(&all), format!("{back}?done=graph-cancelled"));
    robot.act().await;
    assert_eq!((code("runs").await, code("waits").await), (Code::CancelledByUser, Code::CancelledByUser));
    assert!(server.engine().run(&run).await.expect("a run").status.is_terminal());
    let again = reader.post(&format!("/graphs/{run}/retry"), &[]).await;
    let next = location(&again).to_owned();
    assert!(next.starts_with("/runs/run-") && next.ends_with("?done=retried"), "{next}");
    assert!(reader.page(&next).await.contains("1 reused"), "successful jobs are reused");
}

async fn agent_pool_and_restart_forms_take_effect(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let (_run, mut robot) = populate_graph(&server).await;
    let reader = server.reader();
    let agent = robot.identity.agent_id;
    let back = ("back", "/agents");
    let drained = reader.post(&format!("/agents/{agent}/drain"), &[("draining", "yes"), back]).await;
    assert_eq!(location(&drained), "/agents?done=draining");
    assert!(reader.page("/agents").await.contains("Stop draining"));
    let set = reader.post("/pools", &[("name", "deploys"), ("size", "7"), back]).await;
    assert_eq!(location(&set), "/agents?done=pool-set");
    assert!(reader.page("/agents").await.contains("deploys"));
    let wrong = reader.post("/pools", &[("name", "deploys"), ("size", "many"), back]).await;
    assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let removed = reader.post("/pools/remove", &[("name", "deploys"), back]).await;
    assert_eq!(location(&removed), "/agents?done=pool-removed");
    let page = reader.page("/agents").await;
    assert!(!page.contains("value=\"deploys\"") && page.contains("not prepared"), "{page}");
    reader.post("/reboot", &[("note", "new <kernel>"), back]).await;
    robot.act().await;
    let page = reader.page("/agents").await;
    assert!(page.contains("not safe yet") && page.contains("new &lt;kernel&gt;"), "{page}");
    assert!(!page.contains(">safe<"), "a job is still running: {page}");
    let unsure = reader.post(&format!("/agents/{agent}/forget"), &[back]).await;
    assert_eq!(unsure.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let alive = reader.post(&format!("/agents/{agent}/forget"), &[("sure", "yes"), back]).await;
    assert_eq!(alive.status(), StatusCode::CONFLICT, "its last heartbeat is recent");
    let forced = [("sure", "yes"), ("force", "yes"), back];
    let sure = reader.post(&format!("/agents/{agent}/forget"), &forced).await;
    assert_eq!(location(&sure), "/agents?done=forgotten");
    robot.act().await;
    assert!(reader.page("/agents").await.contains(">safe<"), "no command of it counts as running");
    assert_eq!(location(&reader.post("/reboot/over", &[back]).await), "/agents?done=reboot-over");
    let flag = [("flag", "maintenance"), ("scope", "site"), ("note", "vacuum"), ("lasts", "1h"), back];
    assert_eq!(location(&reader.post("/flags", &flag).await), "/agents?done=flag-set");
    let page = reader.page("/agents").await;
    assert!(page.contains("maintenance") && page.contains("vacuum") && page.contains("ends "), "{page}");
}

async fn large_graph_is_drawn_as_layers_with_paged_table(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let mut text = String::from("version: 1\njobs:\n");
    for job in 0..1_200 {
        let _ = writeln!(text, "  job-{job:04}:\n    run: work");
    }
    let large = submit(&server, &text).await;
    let cut: String = text.lines().take(2 + 2 * 300).fold(String::new(), |all, line| all + line + "\n");
    let middle = submit(&server, &cut).await;
    let reader = server.reader();
    let page = reader.page(&format!("/runs/{large}")).await;
    assert!(page.contains("Jobs by state") && page.contains("all jobs: 1,200 waiting"), "{page}");
    let page = reader.page(&format!("/runs/{middle}")).await;
    assert!(page.contains("Jobs by dependency layer") && page.contains("layer 1: 300 waiting"), "{page}");
    for run in [large, middle] {
        let mut path = format!("/runs/{run}?state=pending");
        for first in ["job-0000", "job-0050", "job-0100"] {
            let page = reader.page(&path).await;
            assert!(
                page.contains(&format!(">{first}<")) && page.len() < 300_000,
                "{path}: {} bytes",
                page.len()
            );
            let (before, _) = page.split_once("#jobs\">Next</a>").expect("there is a next page");
            let link = before.rsplit_once("href=\"").expect("a link").1.replace("&amp;", "&");
            path.clone_from(&link);
        }
    }
}

async fn page_of_two_hundred_jobs_is_small(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let mut text = String::from("version: 1\njobs:\n");
    for job in 0..200_usize {
        let _ = writeln!(text, "  a-job-with-a-rather-long-name-{job:04}:\n    run: work");
        if let Some(above) = job.checked_sub(10) {
            let needs = format!("a-job-with-a-rather-long-name-{above:04}");
            let _ = writeln!(text, "    needs: [{needs}]");
        }
    }
    let run = submit(&server, &text).await;
    let page = server.reader().page(&format!("/runs/{run}")).await;
    assert_eq!(page.matches("class=\"node n-waiting\"").count(), 200);
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

async fn graph_page_follows_graph_to_its_end(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let dir = tempfile::tempdir().expect("a directory");
    let gate = dir.path().join("gate");
    let text = format!(
        "version: 1\nname: live-graph\njobs:\n  first:\n    run: echo '<b>hello</b>'\n  second:\n    \
         needs: first\n    run: echo waiting; until test -e {}; do sleep 0.1; done; echo through\n  third:\n    \
         needs: second\n    run: exit 4\n",
        gate.display()
    );
    let run = submit(&server, &text).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.wait_for_text("#graph", "0 of 3 jobs done").await;
    browser.wait_for_text("#live", "Live").await;
    // A reload of the page would lose this variable.
    browser.run("window.notReloaded = true").await;
    let site = GraphProcesses::start(&server);
    browser.wait_for_text("#graph svg .n-succeeded .name", "first").await;
    browser.wait_for_text("#graph svg .n-running .name", "second").await;
    let job = job_id(&run, "second");
    browser.wait_for_text(&format!("#jobs tr[data-key='{job}']"), "agent-1").await;
    let requests = browser
        .run("return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length")
        .await;
    save_screenshot(&browser, "wide-light-graph-running").await;
    // The page of a job follows its output.
    browser.go(&server.url(&format!("/jobs/{job}"))).await;
    browser.wait_for_text("#head .state", "executing").await;
    browser.wait_for_text("#log ol", "waiting").await;
    browser.run("window.notReloaded = true").await;
    std::fs::write(&gate, "").expect("the gate file is written");
    browser.wait_for_text("#log ol", "through").await;
    browser.wait_for_text("#head .state", "succeeded").await;
    assert_eq!(browser.run("return window.notReloaded").await, json!(true));
    save_screenshot(&browser, "wide-light-job").await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.wait_for_text("#head .state", "failed").await;
    browser.wait_for_text("#graph svg .n-failed .name", "third").await;
    browser.wait_for_text("#graph", "3 of 3 jobs done").await;
    browser.wait_for_text("#jobs", "its command ended with 4").await;
    assert!(requests.as_i64().is_some_and(|requests| requests < 60), "the page sent {requests} requests");
    browser.click("#head form button.main").await;
    browser.wait_for_text(".flash", "A retry was queued. This is its page.").await;
    browser.wait_for_text("#graph svg .n-reused .name", "first").await;
    browser.wait_for_text("#head .state", "failed").await;
    browser.go(&server.url("/agents")).await;
    browser.wait_for_text("#agents", "agent-1").await;
    save_screenshot(&browser, "wide-light-agents").await;
    browser.assert_no_errors().await;
    site.stop().await;
    assert_eq!(server.engine().run(&run).await.expect("a run").status, RunState::Failed);
}

/// The filter is in the address and in the form, so live updates use it as well.
async fn runs_are_found_by_graph_name(kind: Kind) {
    let server = ConsoleServer::with_tokens_on(kind).await;
    let text = |name: &str| format!("version: 1\nname: {name}\njobs:\n  one: {{run: work}}\n");
    let nightly = submit(&server, &text("Nightly build")).await;
    let weekly = submit(&server, &text("Weekly build")).await;
    let viewer = server.signed_in(Role::Viewer, None).await;
    let row = |run: &RunId| format!("data-key=\"{run}\"");
    let page = viewer.page("/runs?find=Nightly+b&by=name").await;
    assert!(page.contains(&row(&nightly)) && !page.contains(&row(&weekly)), "{page}");
    assert!(page.contains("value=\"Nightly b\"") && page.contains("value=\"name\" selected"), "{page}");
    let none = viewer.page("/runs?find=build&by=name").await;
    assert!(none.contains("No runs match this filter") && !none.contains(&row(&nightly)), "{none}");
    let long = viewer.page(&format!("/runs?find={}&by=name", "n".repeat(129))).await;
    assert!(long.contains("role=\"alert\"") && !long.contains(&row(&nightly)), "{long}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graph_pages_fit_wide_and_narrow_screens() {
    let server = ConsoleServer::without_tokens().await;
    let (run, _robot) = populate_graph(&server).await;
    let pages = [
        ("graph", format!("/runs/{run}")),
        ("job-good", format!("/jobs/{}", job_id(&run, "good"))),
        ("job-bad", format!("/jobs/{}", job_id(&run, "bad"))),
        ("agents", "/agents".to_owned()),
        ("flags-of-the-site", "/flags".to_owned()),
    ];
    let browser = Browser::open(&BrowserOptions::default()).await;
    for (name, path) in &pages {
        browser.go(&server.url(path)).await;
        fits(&browser, name).await;
    }
}
