//! Tests of fairness, pools, weights and labels.

use super::*;
use crate::project_set::ProjectSet;

fn workspace(name: &str) -> Workspace {
    Workspace { project: "shop".to_owned(), name: name.to_owned() }
}

fn ready(index: usize, name: &str) -> ReadyJob {
    ReadyJob {
        index,
        workspace: workspace(name),
        age: i64::try_from(index).unwrap(),
        requirements: Requirements {
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

fn agent(capacity: i32) -> AgentSlots {
    AgentSlots {
        id: Uuid::nil(),
        labels: Vec::new(),
        projects: ProjectSet::All,
        capacity,
        free: capacity,
        away: false,
    }
}

fn queue(jobs: impl IntoIterator<Item = ReadyJob>) -> ReadyQueue {
    let mut queue = ReadyQueue::default();
    jobs.into_iter().for_each(|job| queue.add(job));
    queue
}

fn assign(queue: &mut ReadyQueue, agents: &mut [AgentSlots]) -> Vec<usize> {
    let assigned = queue.assign(&BTreeMap::new(), agents, &mut BTreeMap::new(), usize::MAX);
    assigned.iter().map(|assigned| assigned.index).collect()
}

#[test]
fn busy_workspace_does_not_starve_another() {
    let flood = (0..100).map(|index| ready(index, "flood"));
    let mut queue = queue(flood.chain((100..104).map(|index| ready(index, "calm"))));
    let started = assign(&mut queue, &mut [agent(8)]);
    assert_eq!(started.len(), 8);
    assert_eq!(started.iter().filter(|index| **index >= 100).count(), 4);
    assert_eq!(queue.len(), 96);
}

#[test]
fn running_jobs_count_for_fairness() {
    let mut queue = queue([ready(0, "busy"), ready(1, "idle")]);
    let running = BTreeMap::from([(workspace("busy"), 3)]);
    let assigned = queue.assign(&running, &mut [agent(1)], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(assigned, [Assignment { index: 1, agent: 0 }]);
}

#[test]
fn database_jobs_come_first_then_older_jobs() {
    let mut jobs: Vec<ReadyJob> = (0..3).map(|index| ready(index, "one")).collect();
    jobs[2].requirements.uses_database = true;
    assert_eq!(assign(&mut queue(jobs), &mut [agent(2)]), [2, 0]);
}

#[test]
fn full_pool_blocks_only_its_own_jobs() {
    let mut jobs: Vec<ReadyJob> = (0..4).map(|index| ready(index, "one")).collect();
    for job in &mut jobs[..3] {
        job.requirements.pool = Some("database".to_owned());
        job.requirements.weight = 2;
    }
    let requirements = jobs[0].requirements.clone();
    let mut pools = BTreeMap::from([("database".to_owned(), Pool { size: 3, used: 0 })]);
    let mut agents = [agent(10)];
    let mut queue = queue(jobs);
    let assigned = queue.assign(&BTreeMap::new(), &mut agents, &mut pools, usize::MAX);
    assert_eq!(assigned.iter().map(|assigned| assigned.index).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(check_capacity(&requirements, &agents, &pools), Capacity::PoolFull);
    assert_eq!(pools["database"].used, 2);
    assert!(queue.contains(1) && queue.contains(2) && !queue.contains(0));
}

#[test]
fn oversized_job_never_fits_an_agent_but_waits_for_its_pool() {
    let pools = BTreeMap::from([("small".to_owned(), Pool { size: 4, used: 0 })]);
    let mut requirements = ready(0, "one").requirements;
    requirements.weight = 5;
    requirements.pool = Some("small".to_owned());
    assert_eq!(
        check_capacity(&requirements, &[agent(8)], &pools),
        Capacity::PoolFull,
        "the pool may be enlarged"
    );
    requirements.pool = None;
    assert_eq!(check_capacity(&requirements, &[agent(8)], &pools), Capacity::Free);
    requirements.weight = 9;
    assert_eq!(check_capacity(&requirements, &[agent(8)], &pools), Capacity::Never);
    assert_eq!(check_capacity(&requirements, &[], &pools), Capacity::NoWorker, "an agent may register later");
}

#[test]
fn job_without_a_matching_agent_waits() {
    let mut job = ready(0, "one");
    job.requirements.labels = vec!["gpu".to_owned()];
    assert_eq!(check_capacity(&job.requirements, &[agent(8)], &BTreeMap::new()), Capacity::NoWorker);
    assert_eq!(assign(&mut queue([job]), &mut [agent(8)]), [0; 0]);
}

#[test]
fn agent_limited_to_a_project_gets_no_other_jobs() {
    let mut other = ready(1, "one");
    other.requirements.project = "mine".to_owned();
    let mut bound = agent(8);
    bound.projects = ProjectSet::only(["mine", "ours"]);
    let mut queue = queue([ready(0, "one"), other]);
    let assigned = queue.assign(&BTreeMap::new(), &mut [bound, agent(1)], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(assigned.len(), 2);
    assert!(assigned.contains(&Assignment { index: 0, agent: 1 }), "{assigned:?}");
    assert!(assigned.contains(&Assignment { index: 1, agent: 0 }), "{assigned:?}");
}

#[test]
fn fullest_agent_with_capacity_gets_the_job() {
    let mut full = agent(8);
    full.free = 1;
    let mut queue = queue([ready(0, "one"), ready(1, "one")]);
    let assigned = queue.assign(&BTreeMap::new(), &mut [agent(8), full], &mut BTreeMap::new(), usize::MAX);
    assert_eq!(assigned, [Assignment { index: 0, agent: 1 }, Assignment { index: 1, agent: 0 }]);
}

#[test]
fn job_is_queued_once_and_can_be_removed() {
    let mut queue = queue([ready(0, "one"), ready(0, "two"), ready(1, "two")]);
    assert_eq!(queue.len(), 2);
    queue.remove(1);
    queue.remove(1);
    assert_eq!(assign(&mut queue, &mut [agent(8)]), [0]);
    assert!(queue.is_empty());
}

#[test]
fn pass_costs_as_much_as_it_assigns() {
    let mut queue = queue((0..50_000).map(|index| ready(index, &format!("w{}", index % 100))));
    for _ in 0..1_000 {
        assert_eq!(assign(&mut queue, &mut [agent(1)]).len(), 1);
    }
    assert_eq!(queue.len(), 49_000);
}

#[test]
fn job_waits_for_the_agent_with_its_inputs() {
    let holder_id = Uuid::from_u128(7);
    let mut bound = ready(0, "one");
    bound.requirements.on = Some(holder_id);
    let mut holder = AgentSlots { id: holder_id, ..agent(1) };
    let assigned = queue([bound.clone(), ready(1, "one")]).assign(
        &BTreeMap::new(),
        &mut [agent(8), holder.clone()],
        &mut BTreeMap::new(),
        usize::MAX,
    );
    assert!(assigned.contains(&Assignment { index: 0, agent: 1 }), "{assigned:?}");
    holder.free = 0;
    assert_eq!(
        check_capacity(&bound.requirements, &[agent(8), holder], &BTreeMap::new()),
        Capacity::NoWorker
    );
    assert_eq!(
        check_capacity(&bound.requirements, &[agent(8)], &BTreeMap::new()),
        Capacity::NoWorker,
        "the agent may return"
    );
}

#[test]
fn job_waits_for_an_agent_on_which_it_did_not_fail() {
    let named = |id: u128, free: i32| AgentSlots { id: Uuid::from_u128(id), free, ..agent(4) };
    let failed = |on: &[u128]| {
        let mut job = ready(0, "one");
        job.requirements.failed_on = on.iter().copied().map(Uuid::from_u128).collect();
        job
    };
    let goes = |job: ReadyJob, agents: &mut [AgentSlots]| -> Option<usize> {
        let pools = &mut BTreeMap::new();
        queue([job]).assign(&BTreeMap::new(), agents, pools, 1).first().map(|assigned| assigned.agent)
    };
    assert_eq!(
        goes(failed(&[]), &mut [named(1, 1), named(2, 4)]),
        Some(0),
        "the fullest agent with capacity"
    );
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), named(2, 4)]), Some(1));
    assert_eq!(goes(failed(&[1, 2]), &mut [named(1, 1), named(2, 4), named(3, 4)]), Some(2));
    // The other agent is busy, so the job waits for it.
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), named(2, 0)]), None);
    // No other agent could take it, so the job returns to the same agent.
    let away = AgentSlots { away: true, ..named(2, 0) };
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), away]), Some(0));
    let narrow = AgentSlots { capacity: 0, ..named(2, 0) };
    assert_eq!(goes(failed(&[1]), &mut [named(1, 1), narrow]), Some(0));
    assert_eq!(goes(failed(&[1, 2]), &mut [named(1, 1), named(2, 4)]), Some(0));
    let mut bound = failed(&[1]);
    bound.requirements.on = Some(Uuid::from_u128(1));
    assert_eq!(goes(bound, &mut [named(1, 1), named(2, 4)]), Some(0), "the agent has the inputs");
}
