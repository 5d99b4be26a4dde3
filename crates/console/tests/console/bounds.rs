//! Long lists: each is bounded and reports what it omits.

use crate::sample_data::{claim, finish};
use crate::server::ConsoleServer;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidemill_core::WorkerId;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_engine::NewSchedule;
use tidemill_testkit::interface::Kind;
use uuid::Uuid;

/// Number of artifacts: more than the page shows.
const ARTIFACTS: usize = 120;

async fn run_page_shows_first_artifacts_and_list_has_all(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&server, &run, "worker-1").await;
    let urls = (0..ARTIFACTS).map(|number| json!({"type": "file", "url": format!("s3://made/{number:03}")}));
    let report = json!({"artifacts": urls.collect::<Vec<_>>()});
    finish(&server, &run, &holder, FinalStatus::Success, report).await;
    let reader = server.reader();
    let page = reader.page(&format!("/runs/{run}")).await;
    let (_, shown) = page.split_once("id=\"artifacts\"").expect("the page has the panel");
    let (shown, _) = shown.split_once("</table>").expect("the table is closed");
    assert_eq!(shown.matches("s3://made/").count(), 50, "{shown}");
    assert!(shown.contains(&format!("tidemill run artifact list {run}")), "{shown}");
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let text = reader.page(&format!("/v1/runs/{run}/artifacts?limit=25{after}")).await;
        let slice: Value = serde_json::from_str(&text).expect("JSON");
        let items = slice["items"].as_array().expect("items");
        assert!(items.len() <= 25, "{}", items.len());
        let fresh = items.iter().filter_map(|one| one["url"].as_str()).all(|url| all.insert(url.to_owned()));
        assert!(fresh, "each artifact is listed once");
        let Some(next) = slice["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all.len(), ARTIFACTS);
}

async fn truncated_dead_letter_names_the_command_for_all_of_it(kind: Kind) {
    use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
    use tidemill_store::Queue as _;
    let server = ConsoleServer::without_tokens_on(kind).await;
    let store = &server.fixture.store;
    for (id, letters) in [("small", 6_000), ("large", 20_000)] {
        let body = json!({"text": id.chars().cycle().take(letters).collect::<String>()});
        let message = NewMessage::new(WORK_ITEMS, id, "stones", body);
        let sent =
            store.send_locked(message, WorkerId(Uuid::new_v4()), None).await.expect("the message is sent");
        let receipt = sent.expect("the message is new").receipt;
        let error = Some("no such stone".to_owned());
        store.kill(receipt, DeadReason::Permanent, error, None).await.expect("the message is dead");
    }
    let page = server.reader().page("/queues/work-items").await;
    let row = |id: &str| {
        let (_, row) = page.split_once(&format!("data-key=\"{id}/0\"")).expect("the letter is listed");
        row.split_once("</tr>").expect("the row is closed").0.to_owned()
    };
    let all = "Complete document: <code>tidemill queue dead work-items --limit 1000 --json</code>";
    let small = row("small");
    assert!(small.contains(&"small".repeat(1_200)) && !small.contains(all), "the body is complete");
    for text in ["permanent", "no such stone", "<td class=\"num\">1</td>"] {
        assert!(small.contains(text), "{text}: {small}");
    }
    assert_eq!(small.matches("<time ").count(), 2, "the times of sending and dying: {small}");
    let large = row("large");
    assert!(large.len() < 12_000 && large.contains(all), "{}", large.len());
    assert!(large.contains("first 8,000 characters") && large.contains("20,0"), "{large}");
}

async fn list_without_pages_reports_omitted_rows(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    for number in 0..203 {
        let schedule = NewSchedule {
            name: format!("schedule-{number:03}"),
            cron: "30 2 * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            request: QueueRun::new("shop", "staging"),
            missed: MissedPolicy::Once,
            overlap: OverlapPolicy::Skip,
        };
        server.engine().put_schedule(schedule).await.expect("a schedule");
        let project = format!("project-{number:03}");
        server.fixture.store.create_project(&project, Vec::new(), None).await.expect("a project");
    }
    let reader = server.reader();
    let page = reader.page("/schedules").await;
    assert_eq!(page.matches("<tr data-key=\"schedule-").count(), 200);
    assert!(
        page.contains("3 others are not shown. All of them: <code>tidemill schedule list</code>"),
        "{page}"
    );
    let page = reader.page("/runs?project=project-007").await;
    assert!(
        !page.contains("project-008") && page.contains("name=\"project\" value=\"project-007\""),
        "{page}"
    );
    for path in ["/flags", "/tokens"] {
        let page = reader.page(path).await;
        assert!(page.matches("<option").count() < 230 && page.contains("others are not shown"), "{path}");
    }
}

mod postgres {
    use tidemill_testkit::interface::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn run_page_shows_first_artifacts_and_list_has_all() {
        super::run_page_shows_first_artifacts_and_list_has_all(Kind::Postgres).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn truncated_dead_letter_names_the_command_for_all_of_it() {
        super::truncated_dead_letter_names_the_command_for_all_of_it(Kind::Postgres).await;
    }
}

mod sqlite {
    use tidemill_testkit::interface::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn run_page_shows_first_artifacts_and_list_has_all() {
        super::run_page_shows_first_artifacts_and_list_has_all(Kind::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn truncated_dead_letter_names_the_command_for_all_of_it() {
        super::truncated_dead_letter_names_the_command_for_all_of_it(Kind::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn list_without_pages_reports_omitted_rows() {
        super::list_without_pages_reports_omitted_rows(Kind::Sqlite).await;
    }
}
