//! Schedules on the command line, fired by `sweep`.

use super::{at, text};
use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, on_both};

on_both!(a_schedule_is_kept_fired_paused_and_removed, two_sweepers_fire_a_schedule_once);

fn add(stage: &Stage, name: &str, more: &[&str]) -> String {
    let usual = ["schedule", "add", name, "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"];
    stage.ok(&[&usual[..], &["--project", "shop", "--env", "staging", "--git-ref", "main"], more].concat())
}

/// Moves the next fire of every schedule into the past.
fn make_due(stage: &Stage) {
    let text = match stage.kind {
        Kind::Postgres => "UPDATE ops.schedules SET next_fire_at = next_fire_at - interval '10 days'",
        Kind::Sqlite => "UPDATE schedules SET next_fire_at = next_fire_at - 864000000000",
    };
    stage.sql(text).expect("the schedules are moved");
}

fn a_schedule_is_kept_fired_paused_and_removed(stage: &Stage) {
    let told = add(stage, "nightly", &["--label", "gpu"]);
    assert!(told.contains("schedule nightly fires next at "), "{told}");
    let list = stage.json(&["schedule", "list"]);
    assert_eq!((text(&list, "0.schedule_id"), text(&list, "0.time_zone")), ("nightly", "Europe/Berlin"));
    assert_eq!(text(&list, "0.request.git_ref"), "main");
    let table = stage.ok(&["schedule", "list"]);
    for word in ["nightly", "shop/staging", "30 2 * * *", "Europe/Berlin", "missed once, overlap skip", "in "]
    {
        assert!(table.contains(word), "{word}: {table}");
    }

    let done = stage.json(&["sweep"]);
    assert_eq!(at(&done, "scheduled").as_array().map(Vec::len), Some(0), "{done}");
    make_due(stage);
    let done = stage.json(&["sweep"]);
    assert_eq!(
        at(&done, "scheduled").as_array().map(Vec::len),
        Some(1),
        "ten missed fires are made up for by one"
    );
    let run = stage.run(&text(&done, "scheduled.0").parse().unwrap());
    assert_eq!((run.git_ref.as_deref(), run.labels), (Some("main"), vec!["gpu".to_owned()]));
    assert!(stage.ok(&["schedule", "list"]).contains(" ago"));

    let told = stage.ok(&["schedule", "pause", "nightly", "--note", "holidays"]);
    assert!(told.contains("is paused"), "{told}");
    assert!(stage.ok(&["schedule", "list"]).contains("paused: holidays"));
    make_due(stage);
    assert_eq!(stage.json(&["sweep"])["scheduled"].as_array().map(Vec::len), Some(0));
    let told = stage.ok(&["schedule", "resume", "nightly"]);
    assert!(told.contains("fires next at 20"), "{told}");
    assert_eq!(
        stage.json(&["sweep"])["scheduled"].as_array().map(Vec::len),
        Some(0),
        "a pause is not made up for"
    );

    let told = stage.ok(&["schedule", "remove", "nightly"]);
    assert!(told.contains("is removed; its runs stay"), "{told}");
    assert_eq!(stage.json(&["schedule", "list"]).as_array().map(Vec::len), Some(0));
    assert_eq!(stage.runs().len(), 1);
}

/// Several processes sweep at the same instant: each fire time is decided once.
fn two_sweepers_fire_a_schedule_once(stage: &Stage) {
    for number in 0..5 {
        add(stage, &format!("nightly-{number}"), &["--missed", "all", "--overlap", "allow"]);
    }
    make_due(stage);
    let sweep = |number| Process::start(stage, &format!("sweep-{number}"), &mut stage.command(&["sweep"]));
    let mut sweeps: Vec<Process> = (0..4).map(sweep).collect();
    for sweep in &mut sweeps {
        assert_eq!(sweep.ended_within(PATIENCE), Some(0));
    }
    let count = |text: &str| stage.sql(text).expect("rows are counted")[0].parse::<usize>().unwrap();
    let (fires, runs) = (
        count("SELECT cast(count(*) AS text) FROM ops.schedule_fires WHERE run_id IS NOT NULL"),
        count("SELECT cast(count(DISTINCT run_id) AS text) FROM ops.schedule_fires WHERE run_id IS NOT NULL"),
    );
    assert_eq!((fires, runs), (stage.runs().len(), stage.runs().len()));
    assert!((45..=55).contains(&fires), "ten days of five nightly schedules fired {fires} times");
}
