//! Commands of schedules, which `sweep` fires.

use super::{at, text};
use crate::fixture::{Fixture, Kind, TIMEOUT, on_both};
use crate::process::Process;

on_both!(schedule_is_added_fired_paused_and_removed, concurrent_sweepers_fire_a_schedule_once);

fn add(fixture: &Fixture, name: &str, more: &[&str]) -> String {
    let usual = ["schedule", "add", name, "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"];
    fixture.ok(&[&usual[..], &["--project", "shop", "--env", "staging", "--git-ref", "main"], more].concat())
}

/// Moves the next fire of every schedule into the past.
fn make_due(fixture: &Fixture) {
    let text = match fixture.kind {
        Kind::Postgres => "UPDATE ops.schedules SET next_fire_at = next_fire_at - interval '10 days'",
        Kind::Sqlite => "UPDATE schedules SET next_fire_at = next_fire_at - 864000000000",
    };
    fixture.sql(text).expect("the schedules are moved");
}

fn schedule_is_added_fired_paused_and_removed(fixture: &Fixture) {
    let message = add(fixture, "nightly", &["--label", "gpu", "--kind", "report"]);
    assert!(message.contains("schedule nightly fires next at "), "{message}");
    let list = fixture.json(&["schedule", "list"]);
    assert_eq!((text(&list, "0.schedule_id"), text(&list, "0.time_zone")), ("nightly", "Europe/Berlin"));
    assert_eq!(text(&list, "0.request.git_ref"), "main");
    let table = fixture.ok(&["schedule", "list"]);
    for word in ["nightly", "shop/staging", "30 2 * * *", "Europe/Berlin", "missed once, overlap skip", "in "]
    {
        assert!(table.contains(word), "{word}: {table}");
    }

    let done = fixture.json(&["sweep"]);
    assert_eq!(at(&done, "scheduled").as_array().map(Vec::len), Some(0), "{done}");
    make_due(fixture);
    let done = fixture.json(&["sweep"]);
    assert_eq!(at(&done, "scheduled").as_array().map(Vec::len), Some(1), "ten missed fires queue one run");
    let run = fixture.run(&text(&done, "scheduled.0").parse().unwrap());
    assert_eq!((run.git_ref.as_deref(), run.labels), (Some("main"), vec!["gpu".to_owned()]));
    assert_eq!(run.kind, "report");
    assert!(fixture.ok(&["schedule", "list"]).contains(" ago"));

    let message = fixture.ok(&["schedule", "pause", "nightly", "--note", "holidays"]);
    assert!(message.contains("is paused"), "{message}");
    assert!(fixture.ok(&["schedule", "list"]).contains("paused: holidays"));
    make_due(fixture);
    assert_eq!(fixture.json(&["sweep"])["scheduled"].as_array().map(Vec::len), Some(0));
    let message = fixture.ok(&["schedule", "resume", "nightly"]);
    assert!(message.contains("fires next at 20"), "{message}");
    assert_eq!(
        fixture.json(&["sweep"])["scheduled"].as_array().map(Vec::len),
        Some(0),
        "fires during a pause are not made up for"
    );

    let message = fixture.ok(&["schedule", "remove", "nightly"]);
    assert!(message.contains("is removed; its runs stay"), "{message}");
    assert_eq!(fixture.json(&["schedule", "list"]).as_array().map(Vec::len), Some(0));
    assert_eq!(fixture.runs().len(), 1);
}

/// Several processes sweep at the same time: each fire time is handled once.
fn concurrent_sweepers_fire_a_schedule_once(fixture: &Fixture) {
    for number in 0..5 {
        add(fixture, &format!("nightly-{number}"), &["--missed", "all", "--overlap", "allow"]);
    }
    make_due(fixture);
    let sweep =
        |number| Process::start(fixture, &format!("sweep-{number}"), &mut fixture.command(&["sweep"]));
    let mut sweeps: Vec<Process> = (0..4).map(sweep).collect();
    for sweep in &mut sweeps {
        assert_eq!(sweep.wait_for_exit(TIMEOUT), Some(0));
    }
    let count = |text: &str| fixture.sql(text).expect("rows are counted")[0].parse::<usize>().unwrap();
    let (fires, runs) = (
        count("SELECT cast(count(*) AS text) FROM ops.schedule_fires WHERE run_id IS NOT NULL"),
        count("SELECT cast(count(DISTINCT run_id) AS text) FROM ops.schedule_fires WHERE run_id IS NOT NULL"),
    );
    assert_eq!((fires, runs), (fixture.runs().len(), fixture.runs().len()));
    assert!((45..=55).contains(&fires), "ten days of five nightly schedules fired {fires} times");
}
