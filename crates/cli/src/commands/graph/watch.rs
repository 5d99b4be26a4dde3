//! Follows a graph until it ends: a live tree on a terminal, one line per change otherwise.

use super::show::{
    GraphView, PAGE, agent_name, agent_names, describe_counts, describe_state, format_took, read_graph, style,
};
use crate::failure::Failure;
use crate::out::{Line, Out, Style, terminal_size};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::record::JobRecord;
use tidemill_core::job::JobState;
use tidemill_core::run::RunState;
use tidemill_core::text::escaped;
use tidemill_core::{RunId, Timestamp};
use tidemill_wire::graphs::ListJobs;

/// Time to wait for a change. Shorter on a terminal, where durations are updated.
const WAIT_LIVE_SECS: u16 = 1;
const WAIT_SECS: u16 = 10;
/// Size of the terminal if it is unknown.
const SIZE_DEFAULT: (u16, u16) = (100, 20);
/// Minimum number of lines of the live tree.
const HEIGHT_MIN: usize = 6;
/// Maximum number of failed jobs that are listed at the end.
const FAILED_MAX: usize = 20;

/// Follows a graph. The exit code is 0 if it succeeded, and 3 otherwise.
pub(in crate::commands) async fn watch(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut view = read_graph(client, run).await?;
    let mut version = view.graph.version;
    let mut tree = LiveTree::default();
    if out.is_live() {
        tree.draw(&view, client.info().await?.now, out);
    } else {
        print_started(&view, out);
    }
    while !view.graph.status.is_terminal() {
        let wait_secs = if out.is_live() { WAIT_LIVE_SECS } else { WAIT_SECS };
        let request = ListJobs {
            changed_after: Some(version),
            wait_secs: Some(wait_secs),
            limit: Some(PAGE),
            ..ListJobs::default()
        };
        let page = client.jobs(run, &request).await?;
        let is_last_page = page.next.is_none();
        for job in page.items {
            version = version.max(job.version);
            update(client, &mut view, job, out).await?;
        }
        if is_last_page {
            view.graph = client.graph(run).await?;
        }
        // Jobs that changed after this page are printed before the end.
        if view.graph.status.is_terminal() && view.graph.version > version {
            view.graph.status = RunState::Running;
        }
        if out.is_live() {
            tree.draw(&view, client.info().await?.now, out);
        }
    }
    print_end(&view, client.info().await?.now, out);
    let succeeded = view.graph.status == RunState::Success;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// Prints the jobs that have started already, if there is no live tree.
fn print_started(view: &GraphView, out: Out) {
    for job in view.jobs.values() {
        if out.is_json() {
            out.print_json(job);
        } else if job.state != JobState::Pending {
            out.print(format_change(job, view, out));
        }
    }
}

/// Applies a change, and prints it if there is no live tree.
async fn update(client: &Client, view: &mut GraphView, job: JobRecord, out: Out) -> Result<(), Failure> {
    if job.agent_id.is_some_and(|agent| !view.agents.contains_key(&agent)) {
        view.agents = agent_names(client).await?;
    }
    let before = view.jobs.insert(job.position, job.clone());
    let is_change = before.is_none_or(|before| before.code != job.code || before.tasks != job.tasks);
    if out.is_json() {
        out.print_json(&job);
    } else if !out.is_live() && is_change {
        out.print(format_change(&job, view, out));
    }
    Ok(())
}

/// Formats a change as one line.
fn format_change(job: &JobRecord, view: &GraphView, out: Out) -> Line {
    let time = out.paint(&job.updated_at.format("%H:%M:%S%.3f").to_string(), Style::Dim);
    let state = out.paint(&describe_state(job), style(job.code));
    let agent = match job.agent_id.filter(|_| job.state == JobState::Running) {
        Some(agent) => format!(" on {}", agent_name(&view.agents, agent)),
        None => String::new(),
    };
    let message = job.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    time.and(format!(" {} ", job.name)).and(state).and(agent).and(message)
}

fn print_end(view: &GraphView, now: Timestamp, out: Out) {
    if out.is_json() {
        out.print_json(&view.graph);
        return;
    }
    let graph = &view.graph;
    if out.is_live() {
        // The live tree may have omitted them.
        for job in view.jobs.values().filter(|job| job.state == JobState::Failed).take(FAILED_MAX) {
            out.print(format_change(job, view, out));
        }
    }
    let took = graph.started_at.map_or_else(String::new, |started| {
        format!(" after {}", crate::times::format_rough(graph.finished_at.unwrap_or(now) - started))
    });
    let state = out.paint(graph.status.as_str(), Style::of_state(graph.status));
    let start = Line::from(format!("graph {} ", graph.run_id));
    out.print(start.and(state).and(format!("{took}: {}", describe_counts(graph.counts))));
    if graph.counts.failed > 0 {
        let first = view.jobs.values().find(|job| job.state == JobState::Failed && job.tasks > 0);
        if let Some(job) = first {
            out.inform(format!("hint: tidemill graph logs {} {}", graph.run_id.in_shell(), job.name));
        }
    }
}

/// A tree that is redrawn in place.
#[derive(Default)]
struct LiveTree {
    height: usize,
}

impl LiveTree {
    fn draw(&mut self, view: &GraphView, now: Timestamp, out: Out) {
        let (width, height) = terminal_size().unwrap_or(SIZE_DEFAULT);
        let height = usize::from(height).saturating_sub(2).max(HEIGHT_MIN);
        let mut lines = lines(view, now, height, out, usize::from(width));
        lines.push(describe_counts(view.graph.counts).into());
        let mut text = String::new();
        if self.height > 0 {
            let _ = write!(text, "\x1b[{}A", self.height);
        }
        for line in &lines {
            text.push_str("\r\x1b[2K");
            text.push_str(line.as_str());
            text.push('\n');
        }
        // Erases the rest of a higher tree.
        text.push_str("\x1b[0J");
        self.height = lines.len();
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes());
        let _ = stdout.flush();
    }
}

/// Lines of the live tree. If the tree does not fit, running, failed and pending jobs are listed and the rest is
/// counted.
fn lines(view: &GraphView, now: Timestamp, height: usize, out: Out, width: usize) -> Vec<Line> {
    let draw = |branch: &str, job: &JobRecord| line(branch, job, view, now, out, width);
    if view.jobs.len() <= height {
        return view.tree.lines(&view.jobs).iter().map(|(branch, job)| draw(branch, job)).collect();
    }
    let order = [JobState::Running, JobState::Failed, JobState::Pending];
    let interesting =
        order.iter().flat_map(|state| view.jobs.values().filter(move |job| job.state == *state));
    let mut lines: Vec<Line> = interesting.take(height - 1).map(|job| draw("", job)).collect();
    lines.push(out.paint(&format!("… {} more", view.jobs.len() - lines.len()), Style::Dim));
    lines
}

fn line(branch: &str, job: &JobRecord, view: &GraphView, now: Timestamp, out: Out, width: usize) -> Line {
    let mark = match job.state {
        JobState::Pending => "·",
        JobState::Running => "▸",
        JobState::Succeeded => "✓",
        JobState::Failed => "✗",
    };
    let name = escaped(&format!("{branch}{mark} {}", job.name));
    let agent = job.agent_id.filter(|_| job.state == JobState::Running);
    let agent = agent.map_or_else(String::new, |agent| format!(" on {}", agent_name(&view.agents, agent)));
    let took = Some(format_took(job, now)).filter(|took| took != "–").unwrap_or_default();
    let rest = escaped(&format!("{took}{agent}"));
    let text: String = format!("{name:<32} {:<24} {rest}", describe_state(job)).chars().take(width).collect();
    out.paint(text.trim_end(), style(job.code))
}

#[cfg(test)]
mod tests {
    use super::super::show::Tree;
    use super::super::show::tests::job;
    use super::*;
    use std::collections::{BTreeMap, HashMap};
    use tidemill_core::job::StatusCode;

    fn view_of(jobs: BTreeMap<i32, JobRecord>) -> GraphView {
        let total = i64::try_from(jobs.len()).unwrap();
        let graph = serde_json::json!({
            "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "status": "running",
            "name": null, "workspace": "w", "digest": "d", "only": [], "rerun_needed": false,
            "submitted_by": "ann", "cancelled_by": null, "retry_of": null,
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null, "version": 1,
            "counts": {"total": total, "pending": 0, "running": 0, "succeeded": 0, "reused": 0, "failed": 0},
        });
        let graph = serde_json::from_value(graph).unwrap();
        GraphView { graph, jobs, tree: Tree::default(), agents: HashMap::new() }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.as_str().to_owned()).collect()
    }

    #[test]
    fn large_graph_fits_the_terminal() {
        let code = |number: i32| match number {
            7 => StatusCode::Executing,
            13 => StatusCode::NonzeroExit,
            0..900 => StatusCode::Succeeded,
            _ => StatusCode::WaitingOnDependencies,
        };
        let jobs = (0..1_000).map(|at| (at, job(at, &format!("job-{at}"), code(at)))).collect();
        let view = view_of(jobs);
        let now = view.graph.created_at;
        let frame_lines = texts(&lines(&view, now, 10, Out::new(false), 80));
        assert_eq!(frame_lines.len(), 10);
        // Running, failed and pending jobs; the rest is counted.
        assert!(frame_lines[0].contains("job-7 ") && frame_lines[1].contains("job-13 "), "{frame_lines:?}");
        assert!(frame_lines[2].contains("job-900 "), "{frame_lines:?}");
        assert!(frame_lines[9].contains("991 more"), "{frame_lines:?}");
        assert!(frame_lines.iter().all(|line| line.chars().count() <= 80), "{frame_lines:?}");
    }

    /// In two frames, one second apart, only the duration of the running job differs.
    #[test]
    fn frame_shows_duration_and_agent_of_a_running_job() {
        let mut running = job(1, "make", StatusCode::Executing);
        let started = running.created_at;
        let agent = uuid::Uuid::from_u128(7);
        (running.started_at, running.agent_id) = (Some(started), Some(agent));
        let mut view = view_of(BTreeMap::from([(0, job(0, "fetch", StatusCode::Succeeded)), (1, running)]));
        view.agents.insert(agent, "ann".to_owned());
        let frame = |secs: i64| {
            let now = started + chrono::TimeDelta::seconds(secs);
            texts(&lines(&view, now, 10, Out::new(false), 80))
        };
        for secs in [42, 43] {
            let frame_lines = frame(secs);
            assert_eq!(frame_lines.len(), 2, "{frame_lines:?}");
            assert!(frame_lines[0].contains("✓ fetch"), "{frame_lines:?}");
            let took = format!("{secs} s on ann");
            for part in ["▸ make", "executing", &took] {
                assert!(frame_lines[1].contains(part), "{frame_lines:?}");
            }
        }
        assert_eq!(frame(42)[0], frame(43)[0]);
        assert_ne!(frame(42)[1], frame(43)[1]);
    }

    #[test]
    fn small_graph_shows_every_job() {
        let jobs = (0..5).map(|at| (at, job(at, &format!("job-{at}"), StatusCode::Succeeded))).collect();
        let view = view_of(jobs);
        let now = view.graph.created_at;
        assert_eq!(lines(&view, now, 10, Out::new(false), 80).len(), 5);
    }
}
