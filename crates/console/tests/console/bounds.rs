//! Lists that could be long: each is bounded, and says what it does not show.

use crate::furnish::{claim, finish};
use crate::house::House;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_engine::NewSchedule;
use tidemill_testkit::door::Kind;

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
}

mod sqlite {
    use tidemill_testkit::door::Kind;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it() {
        super::a_run_that_left_much_shows_the_first_of_it_and_the_list_has_all_of_it(Kind::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_without_pages_says_how_many_it_does_not_show() {
        super::a_list_without_pages_says_how_many_it_does_not_show(Kind::Sqlite).await;
    }
}
