//! A graph as a tree of jobs, with states, durations and agents.

use crate::fail::Failure;
use crate::out::{Cell, Out, Style, printable};
use crate::times;
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::record::{GraphRecord, JobCounts, JobRecord};
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::{RunId, Timestamp};
use tidemill_wire::graphs::{ListJobs, ListNeeds};
use uuid::Uuid;

/// Jobs of a page.
pub(super) const PAGE: u16 = 1_000;
/// Jobs that are shown one by one; of larger graphs those that ended well are only counted.
const SHOWN_MAX: usize = 500;

/// A graph with all of its jobs.
pub(super) struct Seen {
    pub(super) graph: GraphRecord,
    /// By their places.
    pub(super) jobs: BTreeMap<i32, JobRecord>,
    /// Where each stands in the tree.
    pub(super) tree: Tree,
    /// The names of agents.
    pub(super) agents: HashMap<Uuid, String>,
}

/// The shape of a graph: for each job its parent, which is the last of those that it needs.
#[derive(Default)]
pub(super) struct Tree {
    parents: BTreeMap<i32, i32>,
    others: BTreeMap<i32, usize>,
}

/// Reads a graph whole.
pub(super) async fn seen(client: &Client, run: &RunId) -> Result<Seen, Failure> {
    // Its version is read first: whatever changes while the jobs are read is seen again, and nothing is missed.
    let graph = client.graph(run).await?;
    let mut jobs = BTreeMap::new();
    let mut after = None;
    loop {
        let page = client.jobs(run, &ListJobs { after, limit: Some(PAGE), ..ListJobs::default() }).await?;
        jobs.extend(page.items.into_iter().map(|job| (job.position, job)));
        let Some(next) = page.next else { break };
        after = next.parse().ok();
    }
    let mut tree = Tree::default();
    let mut after = None;
    loop {
        let page = client.needs(run, &ListNeeds { after, limit: Some(PAGE) }).await?;
        for job in page.items {
            if let Some(last) = job.needs.iter().max() {
                tree.parents.insert(job.position, *last);
                tree.others.insert(job.position, job.needs.len() - 1);
            }
        }
        let Some(next) = page.next else { break };
        after = next.parse().ok();
    }
    let agents = names(client).await?;
    Ok(Seen { graph, jobs, tree, agents })
}

/// The names of agents, by their ids.
pub(super) async fn names(client: &Client) -> Result<HashMap<Uuid, String>, Failure> {
    let agents = client.agents().await?.items;
    Ok(agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect())
}

pub(super) async fn show(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let seen = seen(client, run).await?;
    if out.is_json() {
        let jobs: Vec<&JobRecord> = seen.jobs.values().collect();
        out.json(&serde_json::json!({"graph": seen.graph, "jobs": jobs}));
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    facts(&seen.graph, now, out);
    out.line("");
    jobs(&seen, now, out);
    Ok(ExitCode::SUCCESS)
}

fn facts(graph: &GraphRecord, now: Timestamp, out: Out) {
    let line = |name: &str, value: String| out.line(format!("{name:<14}{}", printable(&value)));
    line("run", graph.run_id.to_string());
    if let Some(name) = &graph.name {
        line("graph", name.clone());
    }
    out.line(format!("{:<14}{}", "state", out.paint(graph.status.as_str(), Style::of_state(graph.status))));
    line("project", graph.project_id.clone());
    line("workspace", graph.workspace.clone());
    line("submitted", format!("{} by {}", times::relative(graph.created_at, now), graph.submitted_by));
    if let Some(before) = &graph.retry_of {
        line("tries again", before.to_string());
    }
    if let Some(started) = graph.started_at {
        let took = times::rough(graph.finished_at.unwrap_or(now) - started);
        line("took", if graph.finished_at.is_some() { took } else { format!("{took} until now") });
    }
    if let Some(by) = &graph.cancelled_by {
        line("cancelled", format!("by {by}"));
    }
    line("jobs", counted(graph.counts));
}

/// How many jobs are where, in words.
pub(super) fn counted(counts: JobCounts) -> String {
    let parts = [
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.running, "running"),
        (counts.pending, "waiting"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let reused = if counts.reused > 0 { format!(" ({} reused)", counts.reused) } else { String::new() };
    format!("{} of {}{reused}", parts.join(", "), counts.total)
}

/// The jobs as a table whose first column is a tree.
fn jobs(seen: &Seen, now: Timestamp, out: Out) {
    let all: Vec<(String, &JobRecord)> = seen.tree.lines(&seen.jobs);
    let is_large = all.len() > SHOWN_MAX;
    let shown = all.iter().filter(|(_, job)| !is_large || job.state != JobState::Succeeded);
    let rows: Vec<Vec<Cell>> =
        shown.take(SHOWN_MAX).map(|(lead, job)| row(lead, job, &seen.agents, now)).collect();
    let count = rows.len();
    out.table(&["JOB", "STATE", "TOOK", "AGENT", "TRIES", "NOTE"], &rows);
    if count < all.len() {
        out.say(format!("{} more jobs are not shown; --json prints all of them", all.len() - count));
    }
}

fn row(lead: &str, job: &JobRecord, agents: &HashMap<Uuid, String>, now: Timestamp) -> Vec<Cell> {
    let agent = job.agent_id.map_or_else(|| "–".to_owned(), |agent| agent_name(agents, agent));
    let tries = if job.tasks > 0 { job.tasks.to_string() } else { "–".to_owned() };
    vec![
        format!("{lead}{}", job.name).into(),
        Cell(state(job), style(job.code)),
        took(job, now).into(),
        agent.into(),
        tries.into(),
        note(job).into(),
    ]
}

/// The name of an agent, or the beginning of its id where the caller does not see it.
pub(super) fn agent_name(agents: &HashMap<Uuid, String>, agent: Uuid) -> String {
    agents.get(&agent).cloned().unwrap_or_else(|| agent.to_string().chars().take(8).collect())
}

/// Where a job is.
pub(super) fn state(job: &JobRecord) -> String {
    if job.reused_from.is_some() {
        return "reused".to_owned();
    }
    let stopping = if job.stopping { ", stopping" } else { "" };
    format!("{}{stopping}", job.code)
}

/// What is to be said about a job besides.
fn note(job: &JobRecord) -> String {
    let code = job.exit_code.filter(|code| *code != 0 && job.state == JobState::Failed);
    match (&job.message, code) {
        (Some(message), _) => message.clone(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => String::new(),
    }
}

/// How long a job took, or has taken until now.
pub(super) fn took(job: &JobRecord, now: Timestamp) -> String {
    match (job.started_at, job.ended_at) {
        (Some(started), Some(ended)) => times::rough(ended - started),
        (Some(started), None) if job.state == JobState::Running => times::rough(now - started),
        (Some(_) | None, _) => "–".to_owned(),
    }
}

/// The style of a code.
pub(super) fn style(code: StatusCode) -> Style {
    if matches!(code, StatusCode::CancelledByUser | StatusCode::DependencyFailed) {
        return Style::Odd;
    }
    match code.state() {
        JobState::Pending => Style::Dim,
        JobState::Running => Style::Busy,
        JobState::Succeeded => Style::Good,
        JobState::Failed => Style::Bad,
    }
}

impl Tree {
    /// Every job with what leads to it, in the order of the tree: a job stands below the last of those that it needs.
    pub(super) fn lines<'j>(&self, jobs: &'j BTreeMap<i32, JobRecord>) -> Vec<(String, &'j JobRecord)> {
        let mut children: BTreeMap<Option<i32>, Vec<i32>> = BTreeMap::new();
        for position in jobs.keys() {
            let parent = self.parents.get(position).copied().filter(|parent| jobs.contains_key(parent));
            children.entry(parent).or_default().push(*position);
        }
        let mut lines = Vec::with_capacity(jobs.len());
        // The last first, so that the first is on top. A stack of our own: a chain may be long.
        let roots = children.remove(&None).unwrap_or_default();
        let mut stack: Vec<(i32, String, String)> =
            roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
        while let Some((position, lead, below)) = stack.pop() {
            let Some(job) = jobs.get(&position) else { continue };
            lines.push((lead, job));
            let mine = children.remove(&Some(position)).unwrap_or_default();
            // A chain goes straight down: only where it branches is there something to see.
            if let [only] = mine[..] {
                let lead = format!("{below}{}", if self.is_joint(only) { "╰ " } else { "└ " });
                stack.push((only, lead, deeper(&below, "  ")));
                continue;
            }
            let last = mine.last().copied();
            for child in mine.into_iter().rev() {
                let (turn, rest) = if Some(child) == last { ("└ ", "  ") } else { ("├ ", "│ ") };
                stack.push((child, format!("{below}{turn}"), deeper(&below, rest)));
            }
        }
        lines
    }

    /// Whether a job needs more than the one that it stands below.
    fn is_joint(&self, position: i32) -> bool {
        self.others.get(&position).is_some_and(|others| *others > 0)
    }
}

/// Places in front of a name; a chain that is longer goes straight down.
const DEPTH_MAX: usize = 40;

fn deeper(below: &str, rest: &str) -> String {
    if below.chars().count() >= DEPTH_MAX { below.to_owned() } else { format!("{below}{rest}") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A job at a place, in a code.
    pub(in super::super) fn job(position: i32, name: &str, code: StatusCode) -> JobRecord {
        let record = serde_json::json!({
            "job_id": name, "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p",
            "workspace": "w", "name": name, "position": position, "state": code.state(), "code": code,
            "message": null, "requested": true, "reused_from": null, "weight": 1, "pool": null, "task_id": null,
            "tasks": 0, "agent_id": null, "exit_code": null, "errors": 0, "failures": 0, "not_before": null,
            "stopping": false, "cancelled_at": null, "cancelled_by": null, "version": 1,
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "ended_at": null,
            "updated_at": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(record).unwrap()
    }

    fn tree(needs: &[(i32, &[i32])]) -> Tree {
        let mut tree = Tree::default();
        for (position, needs) in needs {
            tree.parents.insert(*position, *needs.iter().max().unwrap());
            tree.others.insert(*position, needs.len() - 1);
        }
        tree
    }

    #[test]
    fn a_job_stands_below_the_last_of_those_that_it_needs() {
        let names = ["build", "lint", "unit", "ui", "deploy"];
        let jobs = names.iter().zip(0..).map(|(name, at)| (at, job(at, name, StatusCode::Created))).collect();
        let tree = tree(&[(2, &[0]), (3, &[0]), (4, &[2, 3])]);
        let lines: Vec<String> =
            tree.lines(&jobs).iter().map(|(lead, job)| format!("{lead}{}", job.name)).collect();
        assert_eq!(lines, ["build", "├ unit", "└ ui", "  ╰ deploy", "lint"]);
    }

    #[test]
    fn a_long_chain_is_shown_whole_and_not_too_deep() {
        let jobs: BTreeMap<i32, JobRecord> =
            (0..500).map(|at| (at, job(at, &format!("link-{at}"), StatusCode::Created))).collect();
        let needs: Vec<i32> = (0..500).collect();
        let mut tree = Tree::default();
        tree.parents.extend(needs.windows(2).map(|pair| (pair[1], pair[0])));
        let lines = tree.lines(&jobs);
        assert_eq!(lines.len(), 500);
        assert!(lines.iter().all(|(lead, _)| lead.chars().count() <= DEPTH_MAX + 4));
    }
}
