//! Lists that could be long: each is bounded, and says what it does not show.

use crate::furnish::{claim, finish};
use crate::house::House;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidemill_core::WorkerId;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_engine::NewSchedule;
use tidemill_testkit::door::Kind;
use uuid::Uuid;

/// What a run leaves here: more than its page shows.
const LEFT: usize = 120;

async fn a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it(kind: Kind) {
    let house = House::open_on(kind).await;
    let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&house, &run, "worker-1").await;
    let urls = (0..LEFT).map(|number| json!({"type": "file", "url": format!("s3://made/{number:03}")}));
    let report = json!({"artifacts": urls.collect::<Vec<_>>()});
    finish(&house, &run, &holder, FinalStatus::Success, report).await;
    let reader = house.reader();
    let page = reader.page(&format!("/runs/{run}")).await;
    let (_, shown) = page.split_once("id=\"artifacts\"").expect("the panel is there");
    let (shown, _) = shown.split_once("</table>").expect("it ends");
    assert_eq!(shown.matches("s3://made/").count(), 50, "{shown}");
    assert!(shown.contains(&format!("tidemill run artifact list {run}")), "{shown}");
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let text = reader.page(&format!("/v1/runs/{run}/artifacts?limit=25{after}")).await;
        let slice: Value = serde_json::from_str(&text).expect("JSON");
        let items = slice["items"].as_array().expect("items");
        assert!(items.len() <= 25, "{}", items.len());
        let fresh = items.iter().filter_map(|one| one["url"].as_str()).all(|url| all.insert(url.to_owned()));
        assert!(fresh, "each is listed once");
        let Some(next) = slice["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all.len(), LEFT);
}

async fn a_dead_letter_is_shown_whole_or_says_how_to_get_all_of_it(kind: Kind) {
    use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
    use tidemill_store::Queue as _;
    let house = House::open_on(kind).await;
    let store = &house.stage.store;
    for (id, letters) in [("small", 6_000), ("large", 20_000)] {
        let body = json!({"text": id.chars().cycle().take(letters).collect::<String>()});
        let message = NewMessage::new(WORK_ITEMS, id, "stones", body);
        let sent = store.send_locked(message, WorkerId(Uuid::new_v4()), None).await.expect("it is sent");
        let receipt = sent.expect("it is new").receipt;
        let error = Some("no such stone".to_owned());
        store.kill(receipt, DeadReason::Permanent, error, None).await.expect("it is dead");
    }
    let page = house.reader().page("/queues/work-items").await;
    let row = |id: &str| {
        let (_, row) = page.split_once(&format!("data-key=\"{id}/0\"")).expect("it is listed");
        row.split_once("</tr>").expect("it ends").0.to_owned()
    };
    let all = "All of it: <code>tidemill queue dead work-items --limit 1000 --json</code>";
    let small = row("small");
    assert!(small.contains(&"small".repeat(1_200)) && !small.contains(all), "all of it is there");
    for words in ["permanent", "no such stone", "<td class=\"num\">1</td>"] {
        assert!(small.contains(words), "{words}: {small}");
    }
    assert_eq!(small.matches("<time ").count(), 2, "when it was sent, and when it was given up: {small}");
    let large = row("large");
    assert!(large.len() < 12_000 && large.contains(all), "{}", large.len());
    assert!(large.contains("first 8,000 characters") && large.contains("20,0"), "{large}");
}

async fn a_list_without_pages_says_how_many_it_does_not_show(kind: Kind) {
    let house = House::open_on(kind).await;
    for number in 0..203 {
        let schedule = NewSchedule {
            name: format!("schedule-{number:03}"),
            cron: "30 2 * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            request: QueueRun::new("shop", "staging"),
            missed: Missed::Once,
            overlap: Overlap::Skip,
        };
        house.engine().put_schedule(schedule).await.expect("a schedule");
        let project = format!("project-{number:03}");
        house.stage.store.create_project(&project, Vec::new(), None).await.expect("a project");
    }
    let reader = house.reader();
    let page = reader.page("/schedules").await;
    assert_eq!(page.matches("<tr data-key=\"schedule-").count(), 200);
    assert!(page.contains("3 others are not shown here: <code>tidemill schedule list</code>"), "{page}");
    let page = reader.page("/runs?project=project-007").await;
    assert!(
        !page.contains("project-008") && page.contains("name=\"project\" value=\"project-007\""),
        "{page}"
    );
    for path in ["/flags", "/tokens"] {
        let page = reader.page(path).await;
        assert!(
            page.matches("<option").count() < 230 && page.contains("others are not shown here"),
            "{path}"
        );
    }
}

mod postgres {
    use tidemill_testkit::door::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it() {
        super::a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it(Kind::Postgres).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dead_letter_is_shown_whole_or_says_how_to_get_all_of_it() {
        super::a_dead_letter_is_shown_whole_or_says_how_to_get_all_of_it(Kind::Postgres).await;
    }
}

mod sqlite {
    use tidemill_testkit::door::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it() {
        super::a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it(Kind::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dead_letter_is_shown_whole_or_says_how_to_get_all_of_it() {
        super::a_dead_letter_is_shown_whole_or_says_how_to_get_all_of_it(Kind::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_without_pages_says_how_many_it_does_not_show() {
        super::a_list_without_pages_says_how_many_it_does_not_show(Kind::Sqlite).await;
    }
}
