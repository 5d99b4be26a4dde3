//! Fairness, pools, weights and labels.

use super::*;

fn ready(index: usize, workspace: &str) -> Ready {
    Ready {
        index,
        workspace: workspace.to_owned(),
        uses_database: false,
        age: i64::try_from(index).unwrap(),
        weight: 1,
        pool: None,
        labels: Vec::new(),
    }
}

fn agent(capacity: i32) -> Agent {
    Agent { labels: Vec::new(), capacity, free: capacity }
}

fn started(given: &[(usize, Room)]) -> Vec<usize> {
    given.iter().filter(|(_, room)| *room == Room::Free).map(|(index, _)| *index).collect()
}

#[test]
fn a_workspace_that_floods_does_not_starve_another() {
    let mut jobs: Vec<Ready> = (0..100).map(|index| ready(index, "flood")).collect();
    jobs.extend((100..104).map(|index| ready(index, "calm")));
    let given = share(jobs, &BTreeMap::new(), &mut [agent(8)], &mut BTreeMap::new());
    let started = started(&given);
    assert_eq!(started.len(), 8);
    assert_eq!(started.iter().filter(|index| **index >= 100).count(), 4);
}

#[test]
fn what_runs_already_counts() {
    let jobs = vec![ready(0, "busy"), ready(1, "idle")];
    let running = BTreeMap::from([("busy".to_owned(), 3)]);
    let given = share(jobs, &running, &mut [agent(1)], &mut BTreeMap::new());
    assert_eq!(started(&given), [1]);
}

#[test]
fn jobs_of_the_database_come_first_and_older_ones_before_younger() {
    let mut jobs: Vec<Ready> = (0..3).map(|index| ready(index, "one")).collect();
    jobs[2].uses_database = true;
    let given = share(jobs, &BTreeMap::new(), &mut [agent(2)], &mut BTreeMap::new());
    assert_eq!(started(&given), [2, 0]);
}

#[test]
fn a_full_pool_keeps_only_its_own_jobs_waiting() {
    let mut jobs: Vec<Ready> = (0..4).map(|index| ready(index, "one")).collect();
    for job in &mut jobs[..3] {
        job.pool = Some("database".to_owned());
        job.weight = 2;
    }
    let mut pools = BTreeMap::from([("database".to_owned(), Pool { size: 3, used: 0 })]);
    let given = share(jobs, &BTreeMap::new(), &mut [agent(10)], &mut pools);
    assert_eq!(started(&given), [0, 3]);
    assert_eq!(given.iter().filter(|(_, room)| *room == Room::PoolFull).count(), 2);
    assert_eq!(pools["database"].used, 2);
}

#[test]
fn a_job_wider_than_its_pool_or_every_agent_never_fits() {
    let mut jobs = vec![ready(0, "one"), ready(1, "one")];
    jobs[0].weight = 5;
    jobs[0].pool = Some("small".to_owned());
    jobs[1].weight = 9;
    let mut pools = BTreeMap::from([("small".to_owned(), Pool { size: 4, used: 0 })]);
    let given = share(jobs, &BTreeMap::new(), &mut [agent(8)], &mut pools);
    assert!(given.iter().all(|(_, room)| *room == Room::Never), "{given:?}");
}

#[test]
fn without_an_agent_that_fits_a_job_waits() {
    let mut job = ready(0, "one");
    job.labels = vec!["gpu".to_owned()];
    let given = share(vec![job], &BTreeMap::new(), &mut [agent(8)], &mut BTreeMap::new());
    assert_eq!(given, [(0, Room::NoWorker)]);
}

#[test]
fn fifty_thousand_jobs_are_shared_in_no_time() {
    let jobs: Vec<Ready> = (0..50_000).map(|index| ready(index, &format!("w{}", index % 100))).collect();
    let given = share(jobs, &BTreeMap::new(), &mut [agent(16)], &mut BTreeMap::new());
    assert_eq!(given.len(), 50_000);
    assert_eq!(started(&given).len(), 16);
}
