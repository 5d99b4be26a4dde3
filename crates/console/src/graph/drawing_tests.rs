//! Tests of graph drawings: escaping, bounds and large graphs.

use super::*;
use chrono::{TimeDelta, TimeZone as _, Utc};
use tidemill_core::RunId;
use tidemill_core::job::StatusCode;

fn moment() -> Timestamp {
    Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap()
}

fn job(index: usize, name: &str, code: StatusCode) -> JobRecord {
    let run = RunId::from_database("run-1".to_owned());
    JobRecord {
        job_id: tidemill_core::task::job_id(&run, name),
        run_id: run,
        project_id: "shop".to_owned(),
        workspace: "shop".to_owned(),
        name: name.to_owned(),
        position: i32::try_from(index).unwrap(),
        state: code.state(),
        code,
        message: None,
        requested: true,
        reused_from: None,
        weight: 1,
        pool: None,
        task_id: None,
        tasks: 0,
        agent_id: None,
        exit_code: None,
        errors: 0,
        failures: 0,
        not_before: None,
        stopping: false,
        cancelled_at: None,
        cancelled_by: None,
        version: 1,
        created_at: moment(),
        started_at: Some(moment()),
        ended_at: None,
        updated_at: moment(),
    }
}

/// A graph in layers of twelve jobs, each of which needs three jobs of the layer before.
fn mesh(count: usize) -> (Vec<JobRecord>, Vec<Vec<usize>>) {
    let name = |index| format!("a-job-with-a-name-of-some-length-{index:06}-and-still-some-more-of-it");
    let code = |index| StatusCode::ALL[index % StatusCode::ALL.len()];
    let jobs = (0..count).map(|index| job(index, &name(index), code(index))).collect();
    let needs = (0..count).map(|index| match index.checked_sub(12) {
        None => Vec::new(),
        Some(above) => {
            let layer = index / 12 * 12 - 12;
            (0..3).map(|other| layer + (above + other * 5) % 12).collect()
        }
    });
    (jobs, needs.collect())
}

#[test]
fn box_has_name_state_and_link_and_escapes_markup() {
    let jobs = [job(0, "extract", StatusCode::Succeeded), job(1, "<b>\u{202e}", StatusCode::NonzeroExit)];
    let drawn = draw(&jobs, &[vec![], vec![0]], moment() + TimeDelta::seconds(5)).into_string();
    assert!(drawn.contains(&format!("href=\"/jobs/{}\"", jobs[0].job_id)), "{drawn}");
    assert!(drawn.contains("<title>extract: succeeded</title>"), "{drawn}");
    assert!(
        drawn.contains("extract is succeeded; &lt;b&gt;⟨U+202E⟩ is nonzero exit after extract"),
        "{drawn}"
    );
    assert!(drawn.contains("class=\"node n-failed\"") && drawn.contains("nonzero exit, 5 s"), "{drawn}");
    assert!(!drawn.contains("<b>") && !drawn.contains('\u{202e}') && !drawn.contains("style="), "{drawn}");
    assert_eq!(drawn.matches('C').count(), 1, "one arrow: {drawn}");
}

#[test]
fn two_hundred_jobs_are_drawn_individually_within_bounds() {
    let (jobs, needs) = mesh(JOBS_MAX);
    let drawn = draw(&jobs, &needs, moment()).into_string();
    assert_eq!(drawn.matches("<rect").count(), 200);
    // The rest of the page needs room as well: the page limit is 300,000 bytes.
    assert!(drawn.len() < 200_000, "{} bytes", drawn.len());
}

#[test]
fn larger_graph_is_drawn_as_layers_with_counts() {
    let (jobs, needs) = mesh(1_000);
    let drawn = draw(&jobs, &needs, moment()).into_string();
    assert!(!drawn.contains("/jobs/") && drawn.len() < 60_000, "{} bytes", drawn.len());
    assert!(drawn.contains(">layers 1–3</text>"), "{drawn}");
    let (jobs, needs) = mesh(300);
    let drawn = draw(&jobs, &needs, moment()).into_string();
    assert!(drawn.contains("layer 1: "), "{drawn}");
    let count_of = |word: &str| drawn.matches(&format!(" {word}</title>")).count();
    assert!(count_of("failed") > 0 && count_of("running") > 0 && count_of("held") > 0, "{drawn}");
}

#[test]
fn graph_with_too_many_arrows_is_drawn_as_layers() {
    let (jobs, _) = mesh(100);
    let needs: Vec<Vec<usize>> =
        (0..100).map(|index| if index < 50 { vec![] } else { (0..50).collect() }).collect();
    let drawn = draw(&jobs, &needs, moment()).into_string();
    assert!(drawn.contains(">layer 2</text>") && !drawn.contains("/jobs/"), "{drawn}");
}
