//! Checks across jobs: needs that do not exist, circular dependencies, outputs with the same path.

use super::definition::{Graph, JobSpec};
use crate::definition::error::{DefinitionErrors, Position, nearest, shown};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A job with the positions of its parts in the file.
pub(super) struct LocatedJob {
    pub(super) job: JobSpec,
    pub(super) at: Position,
    pub(super) needs_at: Vec<Position>,
    pub(super) outputs_at: BTreeMap<String, Position>,
}

/// Checks the graph and sorts its jobs so that each follows the jobs that it needs.
pub(super) fn check(
    name: Option<String>,
    workspace: Option<String>,
    jobs: Vec<LocatedJob>,
    errors: &mut DefinitionErrors,
) -> Option<Graph> {
    check_needs(&jobs, errors);
    check_outputs(&jobs, errors);
    let order = order(&jobs, errors);
    if !errors.0.is_empty() {
        return None;
    }
    let mut jobs: Vec<Option<JobSpec>> = jobs.into_iter().map(|located| Some(located.job)).collect();
    let jobs = order.into_iter().filter_map(|index| jobs[index].take()).collect();
    Some(Graph { name, workspace, jobs })
}

fn check_needs(jobs: &[LocatedJob], errors: &mut DefinitionErrors) {
    let known: HashSet<&str> = jobs.iter().map(|located| located.job.name.as_str()).collect();
    for located in jobs {
        let name = &located.job.name;
        for (index, need) in located.job.needs.iter().enumerate() {
            let at = located.needs_at.get(index).copied().unwrap_or(located.at);
            if need == name {
                errors.hint(at, format!("job `{need}` needs itself"), "remove it");
            } else if located.job.needs[..index].contains(need) {
                errors.hint(at, format!("job `{name}` needs `{need}` twice"), "remove one of them");
            } else if !known.contains(need.as_str()) {
                let message = format!("job `{name}` needs `{}`, which does not exist", shown(need));
                let others = known.iter().copied().filter(|other| other != name);
                match nearest(need, others) {
                    Some(meant) => errors.hint(at, message, format!("did you mean `{meant}`?")),
                    None => errors.hint(at, message, "add that job, or remove the need"),
                }
            }
        }
    }
}

/// Rejects two outputs with the same path: the order of the jobs would decide which file remains.
fn check_outputs(jobs: &[LocatedJob], errors: &mut DefinitionErrors) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for located in jobs {
        for (name, pattern) in &located.job.outputs {
            let at = located.outputs_at.get(name).copied().unwrap_or(located.at);
            if let Some(other) = seen.insert(pattern.as_str(), &located.job.name) {
                let message = format!("`{}` is already an output of job `{other}`", pattern.as_str());
                errors.hint(at, message, "give each output its own path");
            }
        }
    }
}

/// Sorts the jobs topologically. The first circular dependency is an error.
fn order(jobs: &[LocatedJob], errors: &mut DefinitionErrors) -> Vec<usize> {
    let index: HashMap<&str, usize> =
        jobs.iter().enumerate().map(|(index, located)| (located.job.name.as_str(), index)).collect();
    let mut open: Vec<usize> = vec![0; jobs.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (number, located) in jobs.iter().enumerate() {
        let needs: HashSet<usize> =
            located.job.needs.iter().filter_map(|need| index.get(need.as_str()).copied()).collect();
        for need in needs.into_iter().filter(|need| *need != number) {
            after[need].push(number);
            open[number] += 1;
        }
    }
    let mut ready: VecDeque<usize> = (0..jobs.len()).filter(|number| open[*number] == 0).collect();
    let mut order = Vec::with_capacity(jobs.len());
    while let Some(number) = ready.pop_front() {
        order.push(number);
        for &next in &after[number] {
            open[next] -= 1;
            if open[next] == 0 {
                ready.push_back(next);
            }
        }
    }
    if order.len() < jobs.len() {
        let cycle = cycle(jobs, &index, &open);
        let at = cycle.first().map_or_else(Position::default, |number| jobs[*number].at);
        let names: Vec<&str> =
            cycle.iter().chain(cycle.first()).map(|number| jobs[*number].job.name.as_str()).collect();
        let message = format!("circular dependency: {}", names.join(" → "));
        errors.hint(at, message, "remove one of the needs");
    }
    order
}

/// Returns one circular dependency among the jobs that could not be sorted.
fn cycle(jobs: &[LocatedJob], index: &HashMap<&str, usize>, open: &[usize]) -> Vec<usize> {
    let Some(mut number) = open.iter().position(|count| *count > 0) else { return Vec::new() };
    let mut path: Vec<usize> = Vec::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    loop {
        if let Some(begin) = seen.get(&number) {
            return path.split_off(*begin);
        }
        seen.insert(number, path.len());
        path.push(number);
        let mut needs = jobs[number].job.needs.iter().filter_map(|need| index.get(need.as_str()).copied());
        let Some(next) = needs.find(|need| open[*need] > 0 && *need != number) else { return path };
        number = next;
    }
}
