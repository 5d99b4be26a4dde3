//! Fairness, pools, weights and labels.

use super::*;

fn workspace(name: &str) -> Workspace {
    Workspace { project: "shop".to_owned(), name: name.to_owned() }
}

fn ready(index: usize, name: &str) -> Ready {
    Ready {
        index,
        workspace: workspace(name),
        age: i64::try_from(index).unwrap(),
        shape: Shape {
            project: "shop".to_owned(),
            uses_database: false,
            weight: 1,
            pool: None,
            labels: Vec::new(),
            on: None,
            failed_on: Vec::new(),
        },
    }
}

fn agent(capacity: i32) -> Agent {
    Agent { id: Uuid::nil(), labels: Vec::new(), project: None, capacity, free: capacity, away: false }
}

fn line(jobs: impl IntoIterator<Item = Ready>) -> Line {
    let mut line = Line::default();
    jobs.into_iter().for_each(|job| line.add(job));
    line
}

fn give(line: &mut Line, agents: &mut [Agent]) -> Vec<usize> {
    let given = line.give(&BTreeMap::new(), agents, &mut BTreeMap::new(), usize::MAX);
    given.iter().map(|given| given.index).collect()
}

#[test]
fn a_workspace_that_floods_does_not_starve_another() {
    let flood = (0..100).map(|index| ready(index, "flood"));
    let mut line = line(flood.chain((100..104).map(|index| ready(index, "calm"))));
    let started = give(&mut line, &mut [agent(8)]);
    assert_eq!(started.len(), 8);
    assert_eq!(started.iter().filter(|index| **index >= 100).count(), 4);
    assert_eq!(line.len(), 96);
}

#[test]
fn what_runs_already_counts() {
    let mut line = line([ready(0, "busy"), ready(1, "idle")]);
    let running = BTreeMap::from([(workspace("busy"), 3)]);
    let given = line.give(&running, &mut [agent(1)], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(given, [Given { index: 1, agent: 0 }]);
}

#[test]
fn jobs_of_the_database_come_first_and_older_ones_before_younger() {
    let mut jobs: Vec<Ready> = (0..3).map(|index| ready(index, "one")).collect();
    jobs[2].shape.uses_database = true;
    assert_eq!(give(&mut line(jobs), &mut [agent(2)]), [2, 0]);
}

#[test]
fn a_full_pool_keeps_only_its_own_jobs_waiting() {
    let mut jobs: Vec<Ready> = (0..4).map(|index| ready(index, "one")).collect();
    for job in &mut jobs[..3] {
        job.shape.pool = Some("database".to_owned());
        job.shape.weight = 2;
    }
    let shape = jobs[0].shape.clone();
    let mut pools = BTreeMap::from([("database".to_owned(), Pool { size: 3, used: 0 })]);
    let mut agents = [agent(10)];
    let mut line = line(jobs);
    let given = line.give(&BTreeMap::new(), &mut agents, &mut pools, usize::MAX);
    assert_eq!(given.iter().map(|given| given.index).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(room(&shape, &agents, &pools), Room::PoolFull);
    assert_eq!(pools["database"].used, 2);
    assert!(line.contains(1) && line.contains(2) && !line.contains(0));
}

#[test]
fn a_job_wider_than_every_agent_never_fits_and_one_wider_than_its_pool_waits() {
    let pools = BTreeMap::from([("small".to_owned(), Pool { size: 4, used: 0 })]);
    let mut shape = ready(0, "one").shape;
    shape.weight = 5;
    shape.pool = Some("small".to_owned());
    assert_eq!(room(&shape, &[agent(8)], &pools), Room::PoolFull, "the pool may be made larger again");
    shape.pool = None;
    assert_eq!(room(&shape, &[agent(8)], &pools), Room::Free);
    shape.weight = 9;
    assert_eq!(room(&shape, &[agent(8)], &pools), Room::Never);
    assert_eq!(room(&shape, &[], &pools), Room::NoWorker, "an agent may yet come");
}

#[test]
fn without_an_agent_that_fits_a_job_waits() {
    let mut job = ready(0, "one");
    job.shape.labels = vec!["gpu".to_owned()];
    assert_eq!(room(&job.shape, &[agent(8)], &BTreeMap::new()), Room::NoWorker);
    assert_eq!(give(&mut line([job]), &mut [agent(8)]), [0; 0]);
}

#[test]
fn an_agent_of_one_project_gets_no_other_jobs() {
    let mut other = ready(1, "one");
    other.shape.project = "mine".to_owned();
    let mut bound = agent(8);
    bound.project = Some("mine".to_owned());
    let mut line = line([ready(0, "one"), other]);
    let given = line.give(&BTreeMap::new(), &mut [bound, agent(1)], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(given.len(), 2);
    assert!(given.contains(&Given { index: 0, agent: 1 }), "{given:?}");
    assert!(given.contains(&Given { index: 1, agent: 0 }), "{given:?}");
}

#[test]
fn the_fullest_agent_that_has_room_gets_the_job() {
    let mut full = agent(8);
    full.free = 1;
    let mut line = line([ready(0, "one"), ready(1, "one")]);
    let given = line.give(&BTreeMap::new(), &mut [agent(8), full], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(given, [Given { index: 0, agent: 1 }, Given { index: 1, agent: 0 }]);
}

#[test]
fn a_job_has_one_place_and_leaves_it_when_asked() {
    let mut line = line([ready(0, "one"), ready(0, "two"), ready(1, "two")]);
    assert_eq!(line.len(), 2);
    line.remove(1);
    line.remove(1);
    assert_eq!(give(&mut line, &mut [agent(8)]), [0]);
    assert!(line.is_empty());
}

#[test]
fn a_look_costs_what_it_gives() {
    let mut line = line((0..50_000).map(|index| ready(index, &format!("w{}", index % 100))));
    for _ in 0..1_000 {
        assert_eq!(give(&mut line, &mut [agent(1)]).len(), 1);
    }
    assert_eq!(line.len(), 49_000);
}

#[test]
fn a_job_waits_for_the_one_agent_that_has_what_it_needs() {
    let home = Uuid::from_u128(7);
    let mut bound = ready(0, "one");
    bound.shape.on = Some(home);
    let mut holder = Agent { id: home, ..agent(1) };
    let given = line([bound.clone(), ready(1, "one")]).give(
        &BTreeMap::new(),
        &mut [agent(8), holder.clone()],
        &mut BTreeMap::new(),
        usize::MAX,
    );
    assert!(given.contains(&Given { index: 0, agent: 1 }), "{given:?}");
    holder.free = 0;
    assert_eq!(room(&bound.shape, &[agent(8), holder], &BTreeMap::new()), Room::NoWorker);
    assert_eq!(room(&bound.shape, &[agent(8)], &BTreeMap::new()), Room::NoWorker, "it may come back");
}

#[test]
fn a_job_waits_for_an_agent_on_which_it_did_not_fail() {
    let named = |id: u128, free: i32| Agent { id: Uuid::from_u128(id), free, ..agent(4) };
    let failed = |on: &[u128]| {
        let mut job = ready(0, "one");
        job.shape.failed_on = on.iter().copied().map(Uuid::from_u128).collect();
        job
    };
    let goes = |job: Ready, agents: &mut [Agent]| -> Option<usize> {
        let pools = &mut BTreeMap::new();
        line([job]).give(&BTreeMap::new(), agents, pools, 1).first().map(|given| given.agent)
    };
    assert_eq!(goes(failed(&[]), &mut [named(1, 1), named(2, 4)]), Some(0), "the fullest one that can");
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), named(2, 4)]), Some(1));
    assert_eq!(goes(failed(&[1, 2]), &mut [named(1, 1), named(2, 4), named(3, 4)]), Some(2));
    // The other one is busy, and will be done some time.
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), named(2, 0)]), None);
    // Nobody else could: another try at the same place is better than none.
    let away = Agent { away: true, ..named(2, 0) };
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), away]), Some(0));
    let narrow = Agent { capacity: 0, ..named(2, 0) };
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), narrow]), Some(0));
    assert_eq!(goes(failed(&[1, 2]), &mut [named(1, 1), named(2, 4)]), Some(0));
    let mut bound = failed(&[1]);
    bound.shape.on = Some(Uuid::from_u128(1));
    assert_eq!(goes(bound, &mut [named(1, 1), named(2, 4)]), Some(0), "it has what the job needs");
}
