//! Pictures and guards that are made from the lifecycles, so that they cannot disagree with them.

use crate::job::{self, JobEvent, StatusCode};
use crate::partition::{self, PartitionEvent, PartitionState, WorkerRunEvent, WorkerRunState};
use crate::run::{self, EndCause, RunEvent, RunState};
use crate::sync::{self, ConsolidationPhase, Rest, SyncEvent, SyncState};
use std::fmt::{Display, Write as _};

/// The files that are made from code: path from the root of the repository, and contents.
pub fn generated() -> Vec<(&'static str, String)> {
    vec![
        ("docs/states/run.md", run_states()),
        ("docs/states/sync.md", sync_states()),
        ("docs/states/partition.md", partition_states()),
        ("docs/states/worker_run.md", worker_run_states()),
        ("docs/states/job.md", job_states()),
    ]
}

/// A lifecycle, ready to be drawn: its states, the first of them first, its events and its arrows.
struct Picture<'a, S: 'static, E: 'static> {
    noun: &'a str,
    file: &'a str,
    states: &'static [S],
    events: &'static [E],
    next: fn(S, E) -> Option<S>,
    /// States within a state, as Mermaid.
    inside: Option<(S, String)>,
}

impl<S: Copy + PartialEq + Display, E: Copy + Display> Picture<'_, S, E> {
    /// The lifecycle as Mermaid, with a table of what happens.
    fn draw(&self) -> String {
        let mut text = format!(
            "# The life of a {}\n\nMade by `cargo xtask generate` from `crates/core/src/{}`. Do not edit.\n\n\
             ```mermaid\nstateDiagram-v2\n",
            self.noun, self.file
        );
        if let Some(first) = self.states.first() {
            let _ = writeln!(text, "    [*] --> {first}");
        }
        for &from in self.states {
            for &to in self.states {
                let events: Vec<_> = self
                    .events
                    .iter()
                    .filter(|&&event| (self.next)(from, event) == Some(to))
                    .map(ToString::to_string)
                    .collect();
                if !events.is_empty() {
                    let _ = writeln!(text, "    {from} --> {to}: {}", events.join(" / "));
                }
            }
        }
        if let Some((state, inside)) = &self.inside {
            let _ = write!(text, "    state {state} {{\n{inside}    }}\n");
        }
        for &state in self.states {
            if self.events.iter().all(|&event| (self.next)(state, event).is_none()) {
                let _ = writeln!(text, "    {state} --> [*]");
            }
        }
        text.push_str("```\n\n| from | event | to |\n|---|---|---|\n");
        for &from in self.states {
            for &event in self.events {
                if let Some(to) = (self.next)(from, event) {
                    let _ = writeln!(text, "| {from} | {event} | {to} |");
                }
            }
        }
        text
    }
}

fn run_states() -> String {
    let (states, events) = (RunState::ALL, RunEvent::ALL);
    Picture { noun: "run", file: "run.rs", states, events, next: run::next, inside: None }.draw()
}

fn sync_states() -> String {
    let (states, events) = (SyncState::ALL, SyncEvent::ALL);
    let inside = Some((SyncState::Consolidating, phases()));
    Picture { noun: "sync", file: "sync.rs", states, events, next: sync::next, inside }.draw()
}

fn partition_states() -> String {
    let (states, events) = (PartitionState::ALL, PartitionEvent::ALL);
    let next = partition::next;
    Picture { noun: "partition", file: "partition.rs", states, events, next, inside: None }.draw()
}

fn worker_run_states() -> String {
    let (states, events) = (WorkerRunState::ALL, WorkerRunEvent::ALL);
    let next = partition::next_worker_run;
    Picture { noun: "worker run", file: "partition.rs", states, events, next, inside: None }.draw()
}

fn job_states() -> String {
    let (states, events) = (StatusCode::ALL, JobEvent::ALL);
    let picture = Picture { noun: "job", file: "job.rs", states, events, next: job::next, inside: None };
    picture.draw() + &job_codes()
}

/// Every code of a job with what reaches it, and the codes that are not here.
fn job_codes() -> String {
    let mut text = "\n## Codes\n\n| code | state | what reaches it |\n|---|---|---|\n".to_owned();
    for &code in StatusCode::ALL {
        let reaches = |event: &&JobEvent| {
            StatusCode::ALL.iter().any(|&from| from != code && job::next(from, **event) == Some(code))
        };
        let told = |event: &JobEvent| format!("{event}: {}", when(*event));
        let events: Vec<String> = JobEvent::ALL.iter().filter(reaches).map(told).collect();
        let events = if events.is_empty() { "it is submitted".to_owned() } else { events.join("; ") };
        let _ = writeln!(text, "| {code} | {} | {events} |", code.state());
    }
    text.push_str("\n| not here | why |\n|---|---|\n");
    for (code, reason) in job::ABSENT {
        let _ = writeln!(text, "| {code} | {reason} |");
    }
    text
}

/// When an event happens to a job, in words.
const fn when(event: JobEvent) -> &'static str {
    match event {
        JobEvent::Pause => {
            "its site, lane or project is paused, or a restart is prepared, and it has not begun"
        }
        JobEvent::AwaitDependencies => "a job that it needs has not succeeded yet",
        JobEvent::AwaitWorkers => "no agent that fits has room, or none is there",
        JobEvent::AwaitPool => "its pool is full, or was made smaller than it",
        JobEvent::Maintain => "maintenance is on, and it uses the database",
        JobEvent::Reboot => "a restart is prepared while it runs",
        JobEvent::Start => "there is room: a task is made for an agent",
        JobEvent::Prepare => "its agent makes its directory",
        JobEvent::Ready => "its agent can start its command",
        JobEvent::Execute => "its command runs",
        JobEvent::Break => "its command ended badly",
        JobEvent::Leave => "its command is over",
        JobEvent::Finalize => "its agent collects what it left",
        JobEvent::Deliver => "its agent has kept what it left",
        JobEvent::Succeed => "its command ended with 0, and every output is there",
        JobEvent::ExitBadly => "its command ended otherwise or was out of time, and is not tried again",
        JobEvent::MissOutputs => "its command ended with 0, and no file matches an output",
        JobEvent::GiveUp => {
            "no try can succeed, too many tasks came to nothing, or no agent can ever take it"
        }
        JobEvent::TryAgain => "its task came to nothing, or its command failed and may be tried again",
        JobEvent::LoseDependency => "a job that it needs did not succeed",
        JobEvent::Cancel => "a person cancelled it, its graph or its run",
    }
}

/// The phases of a consolidation, as Mermaid.
fn phases() -> String {
    let mut text = String::new();
    if let Some(first) = ConsolidationPhase::ALL.first() {
        let _ = writeln!(text, "        [*] --> {first}");
    }
    for &phase in ConsolidationPhase::ALL {
        let [more, nothing] = [Rest::More, Rest::Nothing].map(|rest| sync::next_phase(phase, rest));
        match (more, nothing) {
            (Some(more), Some(nothing)) if more == nothing => {
                let _ = writeln!(text, "        {phase} --> {more}");
            }
            (Some(more), Some(nothing)) => {
                let _ = writeln!(text, "        {phase} --> {more}: pages are left");
                let _ = writeln!(text, "        {phase} --> {nothing}: none is left");
            }
            (None, _) | (_, None) => {
                let _ = writeln!(text, "        {phase} --> [*]");
            }
        }
    }
    text
}

/// The legal changes of a run's state as a list of SQL row values: `('queued', 'claimed'), …`.
pub fn run_pairs_sql() -> String {
    pairs_sql(&run::pairs())
}

/// The legal changes of a sync's state, in the same way.
pub fn sync_pairs_sql() -> String {
    pairs_sql(&sync::pairs())
}

/// The legal changes of a partition's state, in the same way.
pub fn partition_pairs_sql() -> String {
    pairs_sql(&partition::pairs())
}

/// The legal changes of a worker run's state, in the same way.
pub fn worker_run_pairs_sql() -> String {
    pairs_sql(&partition::worker_run_pairs())
}

/// The legal changes of a job's code, in the same way.
pub fn job_pairs_sql() -> String {
    pairs_sql(&job::pairs())
}

/// The codes of jobs that nothing leaves as a list of SQL literals.
pub fn job_terminal_sql() -> String {
    let terminal = StatusCode::ALL.iter().filter(|code| code.is_terminal());
    terminal.map(|code| format!("'{code}'")).collect::<Vec<_>>().join(", ")
}

fn pairs_sql<S: Display>(pairs: &[(S, S)]) -> String {
    pairs.iter().map(|(from, to)| format!("('{from}', '{to}')")).collect::<Vec<_>>().join(", ")
}

/// The causes that end a run as a list of SQL literals: `'reported', …`.
pub fn end_causes_sql() -> String {
    EndCause::ALL.iter().map(|cause| format!("'{cause}'")).collect::<Vec<_>>().join(", ")
}

/// The states that nothing leaves as a list of SQL literals: `'success', …`.
pub fn run_terminal_sql() -> String {
    let terminal = RunState::ALL.iter().filter(|state| state.is_terminal());
    terminal.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guards_name_every_arrow_once() {
        assert_eq!(
            run_pairs_sql(),
            "('queued', 'claimed'), ('queued', 'cancelled'), ('claimed', 'running'), ('claimed', 'cancelled'), \
             ('running', 'success'), ('running', 'failed'), ('running', 'cancelled')"
        );
        assert_eq!(run_terminal_sql(), "'success', 'failed', 'cancelled'");
    }
}
