//! Follows a graph to its end: a live tree on a terminal, a line for each change elsewhere.

use super::graph_show::{self, PAGE, Seen, agent_name, counted, seen, state, style, took};
use crate::fail::Failure;
use crate::out::{Out, Style, printable};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::record::JobRecord;
use tidemill_core::job::JobState;
use tidemill_core::run::RunState;
use tidemill_core::{RunId, Timestamp};
use tidemill_wire::graphs::ListJobs;

/// How long to wait for a change where a person looks at durations, and where nobody does.
const WAIT_LIVE_SECS: u16 = 1;
const WAIT_SECS: u16 = 10;
/// Lines of the picture where the size of the terminal is not known, and at least.
const HEIGHT: usize = 20;
const HEIGHT_MIN: usize = 6;
/// Width where it is not known.
const WIDTH: usize = 100;

/// Follows a graph. The exit code tells the outcome: 0 for success, 3 for anything else.
pub(super) async fn watch(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut seen = seen(client, run).await?;
    let mut version = seen.graph.version;
    let mut picture = Picture::default();
    if out.is_live() {
        picture.draw(&seen, client.info().await?.now, out);
    } else {
        tell_begun(&seen, out);
    }
    while !seen.graph.status.is_terminal() {
        let wait_secs = if out.is_live() { WAIT_LIVE_SECS } else { WAIT_SECS };
        let asked = ListJobs {
            changed_after: Some(version),
            wait_secs: Some(wait_secs),
            limit: Some(PAGE),
            ..ListJobs::default()
        };
        let page = client.jobs(run, &asked).await?;
        let is_whole = page.next.is_none();
        for job in page.items {
            version = version.max(job.version);
            changed(client, &mut seen, job, out).await?;
        }
        if is_whole {
            seen.graph = client.graph(run).await?;
        }
        // What changed after the page is told before the end is.
        if seen.graph.status.is_terminal() && seen.graph.version > version {
            seen.graph.status = RunState::Running;
        }
        if out.is_live() {
            picture.draw(&seen, client.info().await?.now, out);
        }
    }
    ended(&seen, client.info().await?.now, out);
    let succeeded = seen.graph.status == RunState::Success;
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// What has happened until now, where nobody looks at a picture.
fn tell_begun(seen: &Seen, out: Out) {
    for job in seen.jobs.values() {
        if out.is_json() {
            out.json(job);
        } else if job.state != JobState::Pending {
            out.line(told(job, seen, out));
        }
    }
}

/// Takes a change in, and tells it where nobody looks at a picture.
async fn changed(client: &Client, seen: &mut Seen, job: JobRecord, out: Out) -> Result<(), Failure> {
    if job.agent_id.is_some_and(|agent| !seen.agents.contains_key(&agent)) {
        seen.agents = graph_show::names(client).await?;
    }
    let before = seen.jobs.insert(job.position, job.clone());
    let is_news = before.is_none_or(|before| before.code != job.code || before.tasks != job.tasks);
    if out.is_json() {
        out.json(&job);
    } else if !out.is_live() && is_news {
        out.line(told(&job, seen, out));
    }
    Ok(())
}

/// One change as a line.
fn told(job: &JobRecord, seen: &Seen, out: Out) -> String {
    let time = out.paint(&job.updated_at.format("%H:%M:%S%.3f").to_string(), Style::Dim);
    let state = out.paint(&state(job), style(job.code));
    let agent = match job.agent_id.filter(|_| job.state == JobState::Running) {
        Some(agent) => format!(" on {}", agent_name(&seen.agents, agent)),
        None => String::new(),
    };
    let message = job.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
    format!("{time} {} {state}{}", printable(&job.name), printable(&format!("{agent}{message}")))
}

/// What became of it all.
fn ended(seen: &Seen, now: Timestamp, out: Out) {
    if out.is_json() {
        out.json(&seen.graph);
        return;
    }
    let graph = &seen.graph;
    if out.is_live() {
        // The picture may have left them out.
        for job in seen.jobs.values().filter(|job| job.state == JobState::Failed).take(HEIGHT) {
            out.line(told(job, seen, out));
        }
    }
    let took = graph.started_at.map_or_else(String::new, |started| {
        format!(" after {}", crate::times::rough(graph.finished_at.unwrap_or(now) - started))
    });
    let state = out.paint(graph.status.as_str(), Style::of_state(graph.status));
    out.line(format!("graph {} {state}{took}: {}", graph.run_id, counted(graph.counts)));
    if graph.counts.failed > 0 {
        let first = seen.jobs.values().find(|job| job.state == JobState::Failed && job.tasks > 0);
        if let Some(job) = first {
            out.say(format!("hint: tidemill graph logs {} {}", graph.run_id.in_shell(), job.name));
        }
    }
}

/// A picture that is drawn over the one before.
#[derive(Default)]
struct Picture {
    height: usize,
}

impl Picture {
    fn draw(&mut self, seen: &Seen, now: Timestamp, out: Out) {
        let (width, height) = size();
        let mut lines = lines(seen, now, height.saturating_sub(2).max(HEIGHT_MIN), out, width);
        lines.push(counted(seen.graph.counts));
        let mut text = String::new();
        if self.height > 0 {
            let _ = write!(text, "\x1b[{}A", self.height);
        }
        for line in &lines {
            text.push_str("\r\x1b[2K");
            text.push_str(line);
            text.push('\n');
        }
        // What is left of a picture that was higher.
        text.push_str("\x1b[0J");
        self.height = lines.len();
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes());
        let _ = stdout.flush();
    }
}

/// The lines of a picture: the tree where it fits; otherwise what runs, what failed and what is next, and the rest
/// counted.
fn lines(seen: &Seen, now: Timestamp, height: usize, out: Out, width: usize) -> Vec<String> {
    let drawn = |lead: &str, job: &JobRecord| line(lead, job, seen, now, out, width);
    if seen.jobs.len() <= height {
        return seen.tree.lines(&seen.jobs).iter().map(|(lead, job)| drawn(lead, job)).collect();
    }
    let order = [JobState::Running, JobState::Failed, JobState::Pending];
    let interesting =
        order.iter().flat_map(|state| seen.jobs.values().filter(move |job| job.state == *state));
    let mut lines: Vec<String> = interesting.take(height - 1).map(|job| drawn("", job)).collect();
    lines.push(out.paint(&format!("… {} more", seen.jobs.len() - lines.len()), Style::Dim));
    lines
}

fn line(lead: &str, job: &JobRecord, seen: &Seen, now: Timestamp, out: Out, width: usize) -> String {
    let mark = match job.state {
        JobState::Pending => "·",
        JobState::Running => "▸",
        JobState::Succeeded => "✓",
        JobState::Failed => "✗",
    };
    let name = printable(&format!("{lead}{mark} {}", job.name));
    let agent = job.agent_id.filter(|_| job.state == JobState::Running);
    let agent = agent.map_or_else(String::new, |agent| format!(" on {}", agent_name(&seen.agents, agent)));
    let took = Some(took(job, now)).filter(|took| took != "–").unwrap_or_default();
    let rest = printable(&format!("{took}{agent}"));
    let text: String = format!("{name:<32} {:<24} {rest}", state(job)).chars().take(width).collect();
    out.paint(text.trim_end(), style(job.code))
}

/// The width and the height of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        Ok(_) | Err(_) => (WIDTH, HEIGHT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph_show::Tree;
    use super::super::graph_show::tests::job;
    use super::*;
    use std::collections::{BTreeMap, HashMap};
    use tidemill_core::job::StatusCode;

    fn of(jobs: BTreeMap<i32, JobRecord>) -> Seen {
        let total = i64::try_from(jobs.len()).unwrap();
        let graph = serde_json::json!({
            "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "status": "running",
            "name": null, "workspace": "w", "digest": "d", "only": [], "rerun_needed": false,
            "submitted_by": "ann", "cancelled_by": null, "retry_of": null,
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null, "version": 1,
            "counts": {"total": total, "pending": 0, "running": 0, "succeeded": 0, "reused": 0, "failed": 0},
        });
        let graph = serde_json::from_value(graph).unwrap();
        Seen { graph, jobs, tree: Tree::default(), agents: HashMap::new() }
    }

    #[test]
    fn a_large_graph_does_not_outgrow_the_terminal() {
        let code = |number: i32| match number {
            7 => StatusCode::Executing,
            13 => StatusCode::NonzeroExit,
            0..900 => StatusCode::Succeeded,
            _ => StatusCode::WaitingOnDependencies,
        };
        let jobs = (0..1_000).map(|at| (at, job(at, &format!("job-{at}"), code(at)))).collect();
        let seen = of(jobs);
        let now = seen.graph.created_at;
        let drawn = lines(&seen, now, 10, Out::new(false), 80);
        assert_eq!(drawn.len(), 10);
        // What runs, what failed and what is next; the rest is counted.
        assert!(drawn[0].contains("job-7 ") && drawn[1].contains("job-13 "), "{drawn:?}");
        assert!(drawn[2].contains("job-900 "), "{drawn:?}");
        assert!(drawn[9].contains("991 more"), "{drawn:?}");
        assert!(drawn.iter().all(|line| line.chars().count() <= 80), "{drawn:?}");
    }

    /// Two frames, a second apart, with nothing new between them: only the duration of what runs has changed.
    #[test]
    fn a_frame_shows_for_how_long_a_job_runs_and_where() {
        let mut running = job(1, "make", StatusCode::Executing);
        let started = running.created_at;
        let agent = uuid::Uuid::from_u128(7);
        (running.started_at, running.agent_id) = (Some(started), Some(agent));
        let mut seen = of(BTreeMap::from([(0, job(0, "fetch", StatusCode::Succeeded)), (1, running)]));
        seen.agents.insert(agent, "ann".to_owned());
        let frame =
            |secs: i64| lines(&seen, started + chrono::TimeDelta::seconds(secs), 10, Out::new(false), 80);
        for secs in [42, 43] {
            let drawn = frame(secs);
            assert_eq!(drawn.len(), 2, "{drawn:?}");
            assert!(drawn[0].contains("✓ fetch"), "{drawn:?}");
            let took = format!("{secs} s on ann");
            for part in ["▸ make", "executing", &took] {
                assert!(drawn[1].contains(part), "{drawn:?}");
            }
        }
        assert_eq!(frame(42)[0], frame(43)[0]);
        assert_ne!(frame(42)[1], frame(43)[1]);
    }

    #[test]
    fn a_small_graph_is_shown_whole() {
        let jobs = (0..5).map(|at| (at, job(at, &format!("job-{at}"), StatusCode::Succeeded))).collect();
        let seen = of(jobs);
        let now = seen.graph.created_at;
        assert_eq!(lines(&seen, now, 10, Out::new(false), 80).len(), 5);
    }
}
