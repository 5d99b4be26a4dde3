//! Why a job is where it is: which dependency, which pool and who holds it, which flag, which agent.

use crate::Timestamp;
use crate::graph::place::Held;
use crate::graph::plan::Room;
use crate::graph::record::JobRecord;
use crate::graph::share::{self, Shape};
use crate::job::{JobState, StatusCode};
use crate::project::{Flag, FlagName};
use crate::shell::pasted;
use std::collections::BTreeMap;

/// Holders of a pool that are named.
const HOLDERS_MAX: usize = 10;

/// What was read of a job and what is around it.
#[derive(Debug, Clone)]
pub struct JobFacts {
    /// The job.
    pub job: JobRecord,
    /// What room it needs.
    pub shape: Shape,
    /// The jobs that it needs and that have not succeeded.
    pub needs: Vec<(String, StatusCode)>,
    /// The files that it needs and that one agent alone has.
    pub held: Vec<Held>,
    /// The flags that hold it.
    pub flags: Vec<Flag>,
    /// Its pool: its size, and what runs of it, as weights by `job of run`.
    pub pool: Option<(i32, Vec<(String, i32)>)>,
    /// The agents, as far as they are there.
    pub agents: Vec<AgentFacts>,
    /// Whether a controller acts.
    pub controller: bool,
    /// The time at which all this held.
    pub now: Timestamp,
}

/// What was read of an agent.
#[derive(Debug, Clone)]
pub struct AgentFacts {
    /// Its name.
    pub name: String,
    /// Whether the job's last task is with it.
    pub has_job: bool,
    /// What it has to give; nothing is free where it gets no new tasks.
    pub room: share::Agent,
    /// Since when it is silent, or away, if it is.
    pub silent_since: Option<Timestamp>,
}

/// The one reason.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "wait", rename_all = "snake_case")]
pub enum JobReason {
    /// Nobody decides.
    NoController,
    /// A flag holds it.
    Flagged {
        /// Which.
        flag: FlagName,
        /// What it holds.
        scope: String,
        /// Why.
        note: Option<String>,
        /// Until when.
        until: Option<Timestamp>,
    },
    /// A job that it needs is not there yet.
    Dependency {
        /// The job that it needs.
        job: String,
        /// Where that is.
        code: StatusCode,
        /// How many it waits for in all.
        open: usize,
    },
    /// Something of its last task may still run.
    Stopping {
        /// The agent that has not confirmed.
        agent: Option<String>,
        /// Since when that is silent.
        silent_since: Option<Timestamp>,
    },
    /// Its last task came to nothing, and it waits for a while.
    BackingOff {
        /// Until when.
        until: Timestamp,
        /// What went wrong.
        message: Option<String>,
    },
    /// Its pool is full.
    PoolFull {
        /// The pool.
        pool: String,
        /// How much may run at once.
        size: i32,
        /// How much does.
        used: i32,
        /// What runs.
        holders: Vec<String>,
    },
    /// No agent is there.
    NoAgents {
        /// What it would have to offer.
        labels: Vec<String>,
    },
    /// Agents are there, and none offers what it needs.
    NoAgentFits {
        /// What it needs.
        labels: Vec<String>,
        /// How many agents are there.
        agents: usize,
        /// What none of them offers; empty where each lacks something else, or works for another project.
        lacking: Vec<String>,
    },
    /// The agents that fit are silent or gone.
    AgentsSilent {
        /// The one that was heard last.
        agent: String,
        /// When that was.
        since: Timestamp,
    },
    /// The agents that fit are full.
    AgentsFull {
        /// How much room it needs.
        weight: i32,
        /// How many agents fit.
        agents: usize,
        /// The most room that one of them has.
        free: i32,
    },
    /// One agent alone has what it needs, and is away or has no room.
    HeldFiles {
        /// The job that left it.
        job: String,
        /// The agent that has it.
        agent: String,
        /// Since when that is silent, if it is and somebody remembers.
        since: Option<Timestamp>,
        /// Whether it is away; otherwise it has no room.
        away: bool,
    },
    /// It is next.
    Next,
    /// An agent has it.
    OnAgent {
        /// The agent.
        agent: Option<String>,
        /// How far it is.
        code: StatusCode,
        /// Since when.
        since: Timestamp,
    },
    /// Its agent is silent.
    AgentSilent {
        /// The agent.
        agent: String,
        /// Since when.
        since: Timestamp,
        /// How far it was.
        code: StatusCode,
    },
    /// It is over.
    Ended {
        /// How.
        code: StatusCode,
        /// What was said about it.
        message: Option<String>,
        /// The job whose result it took over.
        reused_from: Option<String>,
    },
}

/// Why a graph is where it is: one of its jobs, and how many there are.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphReason {
    /// The job.
    pub job: String,
    /// Its id.
    pub job_id: String,
    /// Why it is where it is.
    pub reason: JobReason,
    /// Jobs that have ended.
    pub ended: i64,
    /// Jobs in all.
    pub of: i64,
}

/// Decides why a job is where it is, in the order in which a controller decides about it.
pub fn explain_job(facts: &JobFacts) -> JobReason {
    let job = &facts.job;
    match job.code.state() {
        JobState::Succeeded | JobState::Failed => JobReason::Ended {
            code: job.code,
            message: job.message.clone(),
            reused_from: job.reused_from.clone(),
        },
        JobState::Running => running(facts),
        JobState::Pending => pending(facts),
    }
}

fn running(facts: &JobFacts) -> JobReason {
    let agent = facts.agents.iter().find(|agent| agent.has_job);
    let code = facts.job.code;
    if let Some((agent, since)) = agent.and_then(|agent| Some((agent, agent.silent_since?))) {
        return JobReason::AgentSilent { agent: agent.name.clone(), since, code };
    }
    let agent = agent.map(|agent| agent.name.clone());
    JobReason::OnAgent { agent, code, since: facts.job.updated_at }
}

fn pending(facts: &JobFacts) -> JobReason {
    let job = &facts.job;
    if !facts.controller {
        return JobReason::NoController;
    }
    if let Some(flag) = facts.flags.first() {
        return JobReason::Flagged {
            flag: flag.flag,
            scope: flag.scope.clone(),
            note: flag.note.clone(),
            until: flag.until_at,
        };
    }
    if let Some((name, code)) = facts.needs.first() {
        return JobReason::Dependency { job: name.clone(), code: *code, open: facts.needs.len() };
    }
    if job.stopping {
        let agent = facts.agents.iter().find(|agent| agent.has_job);
        return JobReason::Stopping {
            agent: agent.map(|agent| agent.name.clone()),
            silent_since: agent.and_then(|agent| agent.silent_since),
        };
    }
    if let Some(until) = job.not_before.filter(|until| *until > facts.now) {
        return JobReason::BackingOff { until, message: job.message.clone() };
    }
    waiting_for_room(facts)
}

fn waiting_for_room(facts: &JobFacts) -> JobReason {
    let shape = &facts.shape;
    if let (Some(name), Some((size, holders))) = (&shape.pool, &facts.pool) {
        let used: i32 = holders.iter().map(|(_, weight)| weight).sum();
        if used + shape.weight > *size {
            let holders = holders.iter().take(HOLDERS_MAX).map(|(holder, _)| holder.clone()).collect();
            return JobReason::PoolFull { pool: name.clone(), size: *size, used, holders };
        }
    }
    if let Some(reason) = waiting_for_files(facts) {
        return reason;
    }
    let there: Vec<&AgentFacts> = facts.agents.iter().filter(|agent| agent.silent_since.is_none()).collect();
    let fitting: Vec<&AgentFacts> = there.iter().copied().filter(|agent| agent.room.fits(shape)).collect();
    if !fitting.is_empty() {
        let rooms: Vec<share::Agent> = fitting.iter().map(|agent| agent.room.clone()).collect();
        if share::room(&Shape { pool: None, ..shape.clone() }, &rooms, &BTreeMap::new()) == Room::Free {
            return JobReason::Next;
        }
        let not = share::passed_over(shape, &rooms);
        let waited: Vec<i32> =
            rooms.iter().filter(|agent| !not.contains(&agent.id)).map(|agent| agent.free).collect();
        let free = waited.iter().copied().max().unwrap_or(0);
        return JobReason::AgentsFull { weight: shape.weight, agents: waited.len(), free };
    }
    let away = facts.agents.iter().filter(|agent| agent.room.fits(shape));
    let last =
        away.filter_map(|agent| Some((agent.silent_since?, &agent.name))).max_by_key(|(since, _)| *since);
    if let Some((since, name)) = last {
        return JobReason::AgentsSilent { agent: name.clone(), since };
    }
    if there.is_empty() {
        return JobReason::NoAgents { labels: shape.labels.clone() };
    }
    let offered = |label: &String| there.iter().any(|agent| agent.room.labels.contains(label));
    let lacking = shape.labels.iter().filter(|label| !offered(label)).cloned().collect();
    JobReason::NoAgentFits { labels: shape.labels.clone(), agents: there.len(), lacking }
}

/// Why it waits where one agent alone has what it needs.
fn waiting_for_files(facts: &JobFacts) -> Option<JobReason> {
    let on = facts.shape.on?;
    let held =
        facts.held.iter().find(|held| held.agent.as_ref().is_some_and(|agent| agent.agent_id == on))?;
    let known = facts.agents.iter().find(|agent| agent.room.id == on);
    let since = known.and_then(|agent| agent.silent_since);
    let away = known.is_none_or(|agent| agent.silent_since.is_some());
    let has_room = known.is_some_and(|agent| agent.room.free >= facts.shape.weight);
    if has_room && !away {
        return None;
    }
    let agent = held.agent.as_ref().map(|agent| agent.name.clone())?;
    Some(JobReason::HeldFiles { job: held.job.clone(), agent, since, away })
}

impl JobReason {
    /// The sentence for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::NoController => "No controller acts, so nothing begins.".to_owned(),
            Self::Flagged { flag, scope, note, until } => flagged(*flag, scope, note.as_deref(), *until),
            Self::Dependency { job, code, open } => {
                let others = match open.saturating_sub(1) {
                    0 => String::new(),
                    1 => ", and for another one".to_owned(),
                    more => format!(", and for {more} others"),
                };
                format!("It waits for job {job}, which is {code}{others}.")
            }
            Self::BackingOff { until, message } => {
                let message = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
                format!("Its last task came to nothing; it backs off until {}{message}.", super::at(*until))
            }
            // Nothing holds it, so it was made smaller than the job.
            Self::PoolFull { pool, size, holders, .. } if holders.is_empty() => {
                format!("Pool {pool} has size {size}, which is too small for it.")
            }
            Self::PoolFull { pool, size, used, holders } => {
                format!("Pool {pool} is full ({used} of {size}): {}.", holders.join(", "))
            }
            Self::Next => "It is next: an agent with room gets it.".to_owned(),
            Self::Ended { code, message, reused_from } => {
                let from =
                    reused_from.as_ref().map_or_else(String::new, |job| format!(", as job {job} before it"));
                let message = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
                format!("It ended as {code}{from}{message}.")
            }
            Self::Stopping { .. }
            | Self::NoAgents { .. }
            | Self::NoAgentFits { .. }
            | Self::AgentsSilent { .. }
            | Self::AgentsFull { .. }
            | Self::HeldFiles { .. }
            | Self::OnAgent { .. }
            | Self::AgentSilent { .. } => self.agent_sentence(),
        }
    }

    fn agent_sentence(&self) -> String {
        match self {
            Self::Stopping { agent, silent_since } => {
                let agent = agent.as_deref().unwrap_or("unknown");
                let silent = silent_since
                    .map_or_else(String::new, |since| format!(", and is silent since {}", super::at(since)));
                format!("Agent {agent} has not confirmed yet that its last task is stopped{silent}.")
            }
            Self::NoAgents { labels } if labels.is_empty() => {
                "It waits for an agent, and none is there.".to_owned()
            }
            Self::NoAgents { labels } => {
                format!("It waits for an agent that offers {}, and none is there.", labels.join(", "))
            }
            Self::NoAgentFits { labels, agents, lacking } => {
                let lack = match (*agents, lacking.is_empty()) {
                    // One that offers everything and does not fit is another project's.
                    (1, true) => "it works for another project".to_owned(),
                    (1, false) => format!("it does not offer {}", lacking.join(", ")),
                    (_, true) => "each lacks something, or works for another project".to_owned(),
                    (_, false) => format!("none of them offers {}", lacking.join(", ")),
                };
                let needs = if labels.is_empty() { "of its project".to_owned() } else { labels.join(", ") };
                let there =
                    super::counted(i64::try_from(*agents).unwrap_or(i64::MAX), "agent is", "agents are");
                format!("It needs an agent that offers {needs}; {there} there, and {lack}.")
            }
            Self::AgentsSilent { agent, since } => format!(
                "The agents that could take it are away; {agent} was heard last at {}.",
                super::at(*since)
            ),
            Self::AgentsFull { weight, agents: 1, free } => {
                format!(
                    "It needs room for {weight}, and the one agent that could take it has room for {free}."
                )
            }
            Self::AgentsFull { weight, agents, free } => format!(
                "It needs room for {weight}, and none of the {agents} agents that could take it has room for more \
                 than {free}."
            ),
            Self::HeldFiles { job, agent, since, away: true } => {
                let since = since.map_or_else(String::new, |since| format!(" since {}", super::at(since)));
                format!(
                    "It waits for agent {agent}, which alone has what job {job} left, and is away{since}."
                )
            }
            Self::HeldFiles { job, agent, .. } => {
                format!("It waits for room on agent {agent}, which alone has what job {job} left.")
            }
            Self::OnAgent { agent, code, since } => {
                let agent = agent.as_deref().unwrap_or("unknown");
                format!("Agent {agent} has it; it is {code} since {}.", super::at(*since))
            }
            Self::AgentSilent { agent, since, code } => {
                format!("Its agent {agent} is silent since {}; it was {code} then.", super::at(*since))
            }
            Self::NoController
            | Self::Flagged { .. }
            | Self::Dependency { .. }
            | Self::BackingOff { .. }
            | Self::PoolFull { .. }
            | Self::Next
            | Self::Ended { .. } => self.sentence(),
        }
    }

    /// What a person can do about it, where there is one thing to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoController => Some("tidemill up, or tidemill controller".to_owned()),
            Self::Flagged { flag, scope, .. } => Some(format!("tidemill flag clear {flag} --scope {scope}")),
            Self::PoolFull { pool, .. } => Some(format!("tidemill pool set {pool} SIZE")),
            Self::NoAgents { labels } | Self::NoAgentFits { labels, .. } => {
                let mut command = String::from("tidemill agent run");
                for label in labels {
                    command.push_str(" --label ");
                    command.push_str(&pasted(label));
                }
                Some(command)
            }
            Self::HeldFiles { agent, away: true, .. } => {
                Some(format!("start agent {agent} again; with --store agents share what jobs leave"))
            }
            Self::AgentsSilent { .. } | Self::AgentSilent { .. } | Self::Stopping { .. } => {
                Some("tidemill agent list".to_owned())
            }
            Self::Dependency { .. }
            | Self::BackingOff { .. }
            | Self::AgentsFull { .. }
            | Self::HeldFiles { .. }
            | Self::Next
            | Self::OnAgent { .. }
            | Self::Ended { .. } => None,
        }
    }
}

fn flagged(flag: FlagName, scope: &str, note: Option<&str>, until: Option<Timestamp>) -> String {
    let what = scope.split_once(':').map_or(scope.to_owned(), |(kind, name)| format!("{kind} {name}"));
    let note = note.map_or_else(String::new, |note| format!(" ({note})"));
    let until = until.map_or_else(String::new, |until| format!(" until {}", super::at(until)));
    match flag {
        FlagName::Paused => format!("Its {what} is paused{until}{note}."),
        FlagName::Maintenance => format!("The database is under maintenance{until}{note}."),
        FlagName::Reboot => format!("The {what} is about to restart{until}{note}."),
        FlagName::ProbeOff => format!("What probes find does not count{until}{note}."),
    }
}

impl GraphReason {
    /// The sentence for people.
    pub fn sentence(&self) -> String {
        format!("{} of {} jobs have ended. Job {}: {}", self.ended, self.of, self.job, self.reason.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_is_one_and_several_are_several() {
        let full = |agents| JobReason::AgentsFull { weight: 2, agents, free: 1 }.sentence();
        assert_eq!(full(1), "It needs room for 2, and the one agent that could take it has room for 1.");
        let several =
            "It needs room for 2, and none of the 3 agents that could take it has room for more than 1.";
        assert_eq!(full(3), several);
        let unfit = |agents, lacking: &[&str]| {
            let lacking = lacking.iter().map(|label| (*label).to_owned()).collect();
            let labels = vec!["gpu".to_owned(), "arm".to_owned()];
            let told = JobReason::NoAgentFits { labels, agents, lacking }.sentence();
            told.strip_prefix("It needs an agent that offers gpu, arm; ").map(str::to_owned)
        };
        let told = [unfit(1, &["gpu"]), unfit(1, &[]), unfit(2, &["gpu"]), unfit(2, &[])];
        let expected = [
            "1 agent is there, and it does not offer gpu.",
            "1 agent is there, and it works for another project.",
            "2 agents are there, and none of them offers gpu.",
            "2 agents are there, and each lacks something, or works for another project.",
        ];
        assert_eq!(told.map(Option::unwrap_or_default), expected);
    }
}
