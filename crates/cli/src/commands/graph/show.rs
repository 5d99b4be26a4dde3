//! A graph as a tree of jobs, with states, durations and agents.

use crate::failure::Failure;
use crate::out::{Cell, Line, Out, Style};
use crate::times;
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::record::{GraphRecord, JobCounts, JobRecord};
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::{RunId, Timestamp};
use tidemill_wire::graphs::{ListJobs, ListNeeds};
use uuid::Uuid;

pub(super) const PAGE: u16 = 1_000;
/// Maximum number of rows. Larger graphs are shown without the jobs that succeeded.
const SHOWN_MAX: usize = 500;

/// A graph with all of its jobs.
pub(super) struct GraphView {
    pub(super) graph: GraphRecord,
    pub(super) jobs: BTreeMap<i32, JobRecord>,
    pub(super) tree: Tree,
    pub(super) agents: HashMap<Uuid, String>,
}

/// Tree of a graph. The parent of a job is the last of its dependencies.
#[derive(Default)]
pub(super) struct Tree {
    parents: BTreeMap<i32, i32>,
    /// Number of further dependencies of each job.
    others: BTreeMap<i32, usize>,
}

/// Reads a graph with its jobs, its tree and the names of its agents.
pub(super) async fn read_graph(client: &Client, run: &RunId) -> Result<GraphView, Failure> {
    // The version is read first, so that a change during the following reads is reported again and not missed.
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
    let agents = agent_names(client).await?;
    Ok(GraphView { graph, jobs, tree, agents })
}

/// Names of agents by their ids.
pub(in crate::commands) async fn agent_names(client: &Client) -> Result<HashMap<Uuid, String>, Failure> {
    let agents = client.agents().await?.items;
    Ok(agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect())
}

pub(in crate::commands) async fn show(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let view = read_graph(client, run).await?;
    if out.is_json() {
        let jobs: Vec<&JobRecord> = view.jobs.values().collect();
        out.print_json(&serde_json::json!({"graph": view.graph, "jobs": jobs}));
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    print_facts(&view.graph, now, out);
    out.print("");
    print_jobs(&view, now, out);
    Ok(ExitCode::SUCCESS)
}

fn print_facts(graph: &GraphRecord, now: Timestamp, out: Out) {
    let line = |name: &str, value: String| out.print(format!("{name:<14}{value}"));
    line("run", graph.run_id.to_string());
    if let Some(name) = &graph.name {
        line("graph", name.clone());
    }
    let state = out.paint(graph.status.as_str(), Style::of_state(graph.status));
    out.print(Line::from(format!("{:<14}", "state")).and(state));
    line("project", graph.project_id.clone());
    line("workspace", graph.workspace.clone());
    line("submitted", format!("{} by {}", times::format_relative(graph.created_at, now), graph.submitted_by));
    if let Some(before) = &graph.retry_of {
        line("retry of", before.to_string());
    }
    if let Some(started) = graph.started_at {
        let took = times::format_rough(graph.finished_at.unwrap_or(now) - started);
        line("took", if graph.finished_at.is_some() { took } else { format!("{took} so far") });
    }
    if let Some(by) = &graph.cancelled_by {
        line("cancelled", format!("by {by}"));
    }
    line("jobs", describe_counts(graph.counts));
}

/// Describes how many jobs are in each state.
pub(super) fn describe_counts(counts: JobCounts) -> String {
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

/// Prints the jobs as a table whose first column is a tree.
fn print_jobs(view: &GraphView, now: Timestamp, out: Out) {
    let all: Vec<(String, &JobRecord)> = view.tree.lines(&view.jobs);
    let is_large = all.len() > SHOWN_MAX;
    let shown = all.iter().filter(|(_, job)| !is_large || job.state != JobState::Succeeded);
    let rows: Vec<Vec<Cell>> =
        shown.take(SHOWN_MAX).map(|(branch, job)| row(branch, job, &view.agents, now)).collect();
    let count = rows.len();
    out.print_table(&["JOB", "STATE", "TOOK", "AGENT", "TRIES", "NOTE"], &rows);
    if count < all.len() {
        out.inform(format!("{} more jobs; use --json to see all of them", all.len() - count));
    }
}

fn row(branch: &str, job: &JobRecord, agents: &HashMap<Uuid, String>, now: Timestamp) -> Vec<Cell> {
    let agent = job.agent_id.map_or_else(|| "–".to_owned(), |agent| agent_name(agents, agent));
    let tries = if job.tasks > 0 { job.tasks.to_string() } else { "–".to_owned() };
    vec![
        format!("{branch}{}", job.name).into(),
        Cell::new(describe_state(job), style(job.code)),
        format_took(job, now).into(),
        agent.into(),
        tries.into(),
        describe_end(job).into(),
    ]
}

/// Returns the name of an agent, or the beginning of its id if the name is unknown.
pub(in crate::commands) fn agent_name(agents: &HashMap<Uuid, String>, agent: Uuid) -> String {
    agents.get(&agent).cloned().unwrap_or_else(|| agent.to_string().chars().take(8).collect())
}

pub(in crate::commands) fn describe_state(job: &JobRecord) -> String {
    if job.reused_from.is_some() {
        return "reused".to_owned();
    }
    let stopping = if job.stopping { ", stopping" } else { "" };
    format!("{}{stopping}", job.code)
}

/// Message or exit code of a job.
fn describe_end(job: &JobRecord) -> String {
    let code = job.exit_code.filter(|code| *code != 0 && job.state == JobState::Failed);
    match (&job.message, code) {
        (Some(message), _) => message.clone(),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => String::new(),
    }
}

/// Formats the duration of a job, up to now if it is running.
pub(in crate::commands) fn format_took(job: &JobRecord, now: Timestamp) -> String {
    match (job.started_at, job.ended_at) {
        (Some(started), Some(ended)) => times::format_rough(ended - started),
        (Some(started), None) if job.state == JobState::Running => times::format_rough(now - started),
        (Some(_) | None, _) => "–".to_owned(),
    }
}

pub(in crate::commands) fn style(code: StatusCode) -> Style {
    if matches!(code, StatusCode::CancelledByUser | StatusCode::DependencyFailed) {
        return Style::Warning;
    }
    match code.state() {
        JobState::Pending => Style::Dim,
        JobState::Running => Style::Active,
        JobState::Succeeded => Style::Success,
        JobState::Failed => Style::Error,
    }
}

impl Tree {
    /// Returns each job with the branch before its name, in the order of the tree.
    pub(super) fn lines<'j>(&self, jobs: &'j BTreeMap<i32, JobRecord>) -> Vec<(String, &'j JobRecord)> {
        let mut children: BTreeMap<Option<i32>, Vec<i32>> = BTreeMap::new();
        for position in jobs.keys() {
            let parent = self.parents.get(position).copied().filter(|parent| jobs.contains_key(parent));
            children.entry(parent).or_default().push(*position);
        }
        let mut lines = Vec::with_capacity(jobs.len());
        // Reversed, because the stack returns the last item first. No recursion, because a chain may be long.
        let roots = children.remove(&None).unwrap_or_default();
        let mut stack: Vec<(i32, String, String)> =
            roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
        while let Some((position, branch, below)) = stack.pop() {
            let Some(job) = jobs.get(&position) else { continue };
            lines.push((branch, job));
            let own = children.remove(&Some(position)).unwrap_or_default();
            // A single child needs no branching line.
            if let [only] = own[..] {
                let branch = format!("{below}{}", if self.is_joint(only) { "╰ " } else { "└ " });
                stack.push((only, branch, deeper(&below, "  ")));
                continue;
            }
            let last = own.last().copied();
            for child in own.into_iter().rev() {
                let (turn, below_turn) = if Some(child) == last { ("└ ", "  ") } else { ("├ ", "│ ") };
                stack.push((child, format!("{below}{turn}"), deeper(&below, below_turn)));
            }
        }
        lines
    }

    /// Returns whether a job has more dependencies than its parent.
    fn is_joint(&self, position: i32) -> bool {
        self.others.get(&position).is_some_and(|others| *others > 0)
    }
}

/// Maximum indentation. Deeper levels are not indented further.
const DEPTH_MAX: usize = 40;

fn deeper(below: &str, indent: &str) -> String {
    if below.chars().count() >= DEPTH_MAX { below.to_owned() } else { format!("{below}{indent}") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a job at a position with a status code.
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
    fn tree_places_a_job_below_its_last_dependency() {
        let names = ["build", "lint", "unit", "ui", "deploy"];
        let jobs = names.iter().zip(0..).map(|(name, at)| (at, job(at, name, StatusCode::Created))).collect();
        let tree = tree(&[(2, &[0]), (3, &[0]), (4, &[2, 3])]);
        let lines: Vec<String> =
            tree.lines(&jobs).iter().map(|(branch, job)| format!("{branch}{}", job.name)).collect();
        assert_eq!(lines, ["build", "├ unit", "└ ui", "  ╰ deploy", "lint"]);
    }

    #[test]
    fn tree_of_a_long_chain_has_limited_depth() {
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
