//! What is wrong with jobs taken together: needs that do not exist, circles, outputs that get into each other's way.

use super::definition::{Graph, JobSpec};
use super::fault::{At, Faults, nearest, shown};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A job and where its parts stand.
pub(super) struct Placed {
    pub(super) job: JobSpec,
    pub(super) at: At,
    pub(super) needs_at: Vec<At>,
    pub(super) outputs_at: BTreeMap<String, At>,
}

/// Checks the whole, and puts every job after everything that it needs.
pub(super) fn check(
    name: Option<String>,
    workspace: Option<String>,
    jobs: Vec<Placed>,
    faults: &mut Faults,
) -> Option<Graph> {
    needs_exist(&jobs, faults);
    outputs_differ(&jobs, faults);
    let order = order(&jobs, faults);
    if !faults.0.is_empty() {
        return None;
    }
    let mut jobs: Vec<Option<JobSpec>> = jobs.into_iter().map(|placed| Some(placed.job)).collect();
    let jobs = order.into_iter().filter_map(|index| jobs[index].take()).collect();
    Some(Graph { name, workspace, jobs })
}

fn needs_exist(jobs: &[Placed], faults: &mut Faults) {
    let known: HashSet<&str> = jobs.iter().map(|placed| placed.job.name.as_str()).collect();
    for placed in jobs {
        let name = &placed.job.name;
        for (index, need) in placed.job.needs.iter().enumerate() {
            let at = placed.needs_at.get(index).copied().unwrap_or(placed.at);
            if need == name {
                faults.hint(at, format!("job `{need}` needs itself"), "leave it out");
            } else if placed.job.needs[..index].contains(need) {
                faults.hint(at, format!("job `{name}` needs `{need}` twice"), "once is enough");
            } else if !known.contains(need.as_str()) {
                let words = format!("job `{name}` needs `{}`, which does not exist", shown(need));
                let others = known.iter().copied().filter(|other| other != name);
                match nearest(need, others) {
                    Some(meant) => faults.hint(at, words, format!("is `{meant}` meant?")),
                    None => faults.hint(at, words, "add that job, or leave it out"),
                }
            }
        }
    }
}

/// The same path from two jobs would be a matter of luck.
fn outputs_differ(jobs: &[Placed], faults: &mut Faults) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for placed in jobs {
        for (name, pattern) in &placed.job.outputs {
            let at = placed.outputs_at.get(name).copied().unwrap_or(placed.at);
            if let Some(other) = seen.insert(pattern.as_str(), &placed.job.name) {
                let words = format!("`{}` is an output of job `{other}` as well", pattern.as_str());
                faults.hint(at, words, "give each output a path of its own");
            }
        }
    }
}

/// An order in which every job comes after what it needs; the first circle is a fault.
fn order(jobs: &[Placed], faults: &mut Faults) -> Vec<usize> {
    let index: HashMap<&str, usize> =
        jobs.iter().enumerate().map(|(index, placed)| (placed.job.name.as_str(), index)).collect();
    let mut open: Vec<usize> = vec![0; jobs.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (place, placed) in jobs.iter().enumerate() {
        let needs: HashSet<usize> =
            placed.job.needs.iter().filter_map(|need| index.get(need.as_str()).copied()).collect();
        for need in needs.into_iter().filter(|need| *need != place) {
            after[need].push(place);
            open[place] += 1;
        }
    }
    let mut ready: VecDeque<usize> = (0..jobs.len()).filter(|place| open[*place] == 0).collect();
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(place) = ready.pop_front() {
        order.push(place);
        for &next in &after[place] {
            open[next] -= 1;
            if open[next] == 0 {
                ready.push_back(next);
            }
        }
    }
    if order.len() < jobs.len() {
        let circle = circle(jobs, &index, &open);
        let at = circle.first().map_or_else(At::default, |place| jobs[*place].at);
        let names: Vec<&str> =
            circle.iter().chain(circle.first()).map(|place| jobs[*place].job.name.as_str()).collect();
        let words = format!("these jobs need each other in a circle: {}", names.join(" → "));
        faults.hint(at, words, "take one of the needs out");
    }
    order
}

/// One circle among the jobs that could not be placed: from any of them, needs lead back sooner or later.
fn circle(jobs: &[Placed], index: &HashMap<&str, usize>, open: &[usize]) -> Vec<usize> {
    let Some(mut place) = open.iter().position(|count| *count > 0) else { return Vec::new() };
    let mut path: Vec<usize> = Vec::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    loop {
        if let Some(begin) = seen.get(&place) {
            return path.split_off(*begin);
        }
        seen.insert(place, path.len());
        path.push(place);
        let mut needs = jobs[place].job.needs.iter().filter_map(|need| index.get(need.as_str()).copied());
        let Some(next) = needs.find(|need| open[*need] > 0 && *need != place) else { return path };
        place = next;
    }
}
