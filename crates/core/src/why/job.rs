//! The reason for the current state of a job.

use crate::Timestamp;
use crate::graph::assignment::{self, Requirements};
use crate::graph::placement::LocalOutputs;
use crate::graph::plan::Capacity;
use crate::graph::record::JobRecord;
use crate::job::{JobState, StatusCode};
use crate::project::{Flag, FlagName};
use crate::shell::quote;
use std::collections::BTreeMap;

/// Maximum number of jobs listed as holders of a pool.
const HOLDERS_MAX: usize = 10;

/// The input of [`explain_job`].
#[derive(Debug, Clone)]
pub struct JobFacts {
    pub job: JobRecord,
    pub requirements: Requirements,
    /// Needed jobs that have not succeeded.
    pub needs: Vec<(String, StatusCode)>,
    /// Inputs that only one agent has.
    pub held: Vec<LocalOutputs>,
    /// Flags that apply to the job.
    pub flags: Vec<Flag>,
    /// Its pool: the size, and the weights of the running jobs by `job of run`.
    pub pool: Option<(i32, Vec<(String, i32)>)>,
    pub agents: Vec<AgentFacts>,
    /// Whether a controller is running.
    pub controller: bool,
    /// Time of the snapshot.
    pub now: Timestamp,
}

/// The part of the input about an agent.
#[derive(Debug, Clone)]
pub struct AgentFacts {
    pub name: String,
    /// Whether it has the job's last task.
    pub has_job: bool,
    /// Its capacity; none is free if it gets no new tasks.
    pub slots: assignment::AgentSlots,
    /// Time since which it has been silent or signed off.
    pub silent_since: Option<Timestamp>,
}

/// The reason for the current state of a job.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "wait", rename_all = "snake_case")]
pub enum JobReason {
    /// No controller is running.
    NoController,
    Flagged {
        /// Name of the flag.
        flag: FlagName,
        /// Scope of the flag.
        scope: String,
        /// Note of the flag.
        note: Option<String>,
        /// End of the flag, if it ends by itself.
        until: Option<Timestamp>,
    },
    /// A job that it needs has not succeeded.
    Dependency {
        /// Name of the needed job.
        job: String,
        /// Status code of that job.
        code: StatusCode,
        /// Number of needed jobs that have not succeeded.
        open: usize,
    },
    /// The command of its last task may still run.
    Stopping {
        /// Agent that has not confirmed the stop.
        agent: Option<String>,
        /// Time since which that agent has been silent.
        silent_since: Option<Timestamp>,
    },
    /// Its last task failed, and it backs off.
    BackingOff {
        /// End of the back-off.
        until: Timestamp,
        /// Error of the last task.
        message: Option<String>,
    },
    PoolFull {
        /// Name of the pool.
        pool: String,
        /// Size of the pool.
        size: i32,
        /// Total weight of its running jobs.
        used: i32,
        /// Running jobs of the pool.
        holders: Vec<String>,
    },
    /// No agent is connected.
    NoAgents {
        /// Labels that the job requires.
        labels: Vec<String>,
    },
    /// Agents are connected, but none matches.
    NoAgentFits {
        /// Labels that the job requires.
        labels: Vec<String>,
        /// Number of connected agents.
        agents: usize,
        /// Labels that no agent has; empty if each agent lacks another label or serves another project.
        lacking: Vec<String>,
    },
    /// The matching agents are silent or have signed off.
    AgentsSilent {
        /// Agent with the latest heartbeat.
        agent: String,
        /// Time of that heartbeat.
        since: Timestamp,
    },
    /// The matching agents have no free capacity.
    AgentsFull {
        /// Weight of the job.
        weight: i32,
        /// Number of matching agents.
        agents: usize,
        /// Largest free capacity among them.
        free: i32,
    },
    /// Only one agent has its inputs, and that agent is away or has no free capacity.
    HeldFiles {
        /// Job that produced the inputs.
        job: String,
        /// Agent that has the inputs.
        agent: String,
        /// Time since which that agent has been silent, if known.
        since: Option<Timestamp>,
        /// Whether that agent is away; otherwise it has no free capacity.
        away: bool,
    },
    /// The next agent with free capacity gets it.
    Next,
    /// An agent is executing it.
    OnAgent {
        /// Name of the agent.
        agent: Option<String>,
        /// Status code of the job.
        code: StatusCode,
        /// Time of the last change.
        since: Timestamp,
    },
    /// Its agent has stopped sending heartbeats.
    AgentSilent {
        /// Name of the agent.
        agent: String,
        /// Time of the last heartbeat.
        since: Timestamp,
        /// Last status code of the job.
        code: StatusCode,
    },
    Ended {
        code: StatusCode,
        /// Explanation of the status code.
        message: Option<String>,
        /// Job whose result is reused.
        reused_from: Option<String>,
    },
}

/// The reason for the current state of a graph: that of one of its jobs.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphReason {
    /// Name of the job.
    pub job: String,
    /// Id of the job.
    pub job_id: String,
    /// Reason for the current state of the job.
    pub reason: JobReason,
    /// Number of ended jobs.
    pub ended: i64,
    /// Number of all jobs.
    pub of: i64,
}

/// Returns the reason for the state of a job. The order of the checks is that of the controller.
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
    wait_for_capacity(facts)
}

fn wait_for_capacity(facts: &JobFacts) -> JobReason {
    let requirements = &facts.requirements;
    if let (Some(name), Some((size, holders))) = (&requirements.pool, &facts.pool) {
        let used: i32 = holders.iter().map(|(_, weight)| weight).sum();
        if used + requirements.weight > *size {
            let holders = holders.iter().take(HOLDERS_MAX).map(|(holder, _)| holder.clone()).collect();
            return JobReason::PoolFull { pool: name.clone(), size: *size, used, holders };
        }
    }
    if let Some(reason) = wait_for_inputs(facts) {
        return reason;
    }
    let connected: Vec<&AgentFacts> =
        facts.agents.iter().filter(|agent| agent.silent_since.is_none()).collect();
    let fitting: Vec<&AgentFacts> =
        connected.iter().copied().filter(|agent| agent.slots.fits(requirements)).collect();
    if !fitting.is_empty() {
        let slots: Vec<assignment::AgentSlots> = fitting.iter().map(|agent| agent.slots.clone()).collect();
        if assignment::check_capacity(
            &Requirements { pool: None, ..requirements.clone() },
            &slots,
            &BTreeMap::new(),
        ) == Capacity::Free
        {
            return JobReason::Next;
        }
        let excluded = assignment::excluded_agents(requirements, &slots);
        let candidates: Vec<i32> =
            slots.iter().filter(|agent| !excluded.contains(&agent.id)).map(|agent| agent.free).collect();
        let free = candidates.iter().copied().max().unwrap_or(0);
        return JobReason::AgentsFull { weight: requirements.weight, agents: candidates.len(), free };
    }
    let away = facts.agents.iter().filter(|agent| agent.slots.fits(requirements));
    let last =
        away.filter_map(|agent| Some((agent.silent_since?, &agent.name))).max_by_key(|(since, _)| *since);
    if let Some((since, name)) = last {
        return JobReason::AgentsSilent { agent: name.clone(), since };
    }
    if connected.is_empty() {
        return JobReason::NoAgents { labels: requirements.labels.clone() };
    }
    let offered = |label: &String| connected.iter().any(|agent| agent.slots.labels.contains(label));
    let lacking = requirements.labels.iter().filter(|label| !offered(label)).cloned().collect();
    JobReason::NoAgentFits { labels: requirements.labels.clone(), agents: connected.len(), lacking }
}

/// Returns the reason for waiting for the one agent that has the inputs.
fn wait_for_inputs(facts: &JobFacts) -> Option<JobReason> {
    let on = facts.requirements.on?;
    let held =
        facts.held.iter().find(|held| held.agent.as_ref().is_some_and(|agent| agent.agent_id == on))?;
    let known = facts.agents.iter().find(|agent| agent.slots.id == on);
    let since = known.and_then(|agent| agent.silent_since);
    let away = known.is_none_or(|agent| agent.silent_since.is_some());
    let has_capacity = known.is_some_and(|agent| agent.slots.free >= facts.requirements.weight);
    if has_capacity && !away {
        return None;
    }
    let agent = held.agent.as_ref().map(|agent| agent.name.clone())?;
    Some(JobReason::HeldFiles { job: held.job.clone(), agent, since, away })
}

impl JobReason {
    /// Returns the reason as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::NoController => "No controller is running, so no job starts.".to_owned(),
            Self::Flagged { flag, scope, note, until } => flagged(*flag, scope, note.as_deref(), *until),
            Self::Dependency { job, code, open } => {
                let others = match open.saturating_sub(1) {
                    0 => String::new(),
                    1 => " and for 1 other job".to_owned(),
                    more => format!(" and for {more} other jobs"),
                };
                format!("It waits for job {job}, which is {code}{others}.")
            }
            Self::BackingOff { until, message } => {
                let message = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
                format!("Its last task failed; it backs off until {}{message}.", super::at(*until))
            }
            // No job runs in the pool, so the pool is smaller than the job.
            Self::PoolFull { pool, size, holders, .. } if holders.is_empty() => {
                format!("Pool {pool} has size {size}, which is too small for it.")
            }
            Self::PoolFull { pool, size, used, holders } => {
                format!("Pool {pool} is full ({used} of {size}): {}.", holders.join(", "))
            }
            Self::Next => "It is next: an agent with free capacity gets it.".to_owned(),
            Self::Ended { code, message, reused_from } => {
                let from =
                    reused_from.as_ref().map_or_else(String::new, |job| format!(", reused from job {job}"));
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
                let silent = silent_since.map_or_else(String::new, |since| {
                    format!(" and has been silent since {}", super::at(since))
                });
                format!("Agent {agent} has not confirmed that its last task is stopped{silent}.")
            }
            Self::NoAgents { labels } if labels.is_empty() => {
                "It waits for an agent, but no agent is connected.".to_owned()
            }
            Self::NoAgents { labels } => {
                format!(
                    "It waits for an agent with the labels {}, but no agent is connected.",
                    labels.join(", ")
                )
            }
            Self::NoAgentFits { labels, agents, lacking } => no_agent_fits(labels, *agents, lacking),
            Self::AgentsSilent { agent, since } => format!(
                "The agents that could take it are silent; the last heartbeat came from {agent} at {}.",
                super::at(*since)
            ),
            Self::AgentsFull { weight, agents: 1, free } => {
                format!("It needs capacity {weight}; the only agent that could take it has {free} free.")
            }
            Self::AgentsFull { weight, agents, free } => format!(
                "It needs capacity {weight}; none of the {agents} agents that could take it has more than {free} free."
            ),
            Self::HeldFiles { job, agent, since, away: true } => {
                let since = since.map_or_else(String::new, |since| format!(" since {}", super::at(since)));
                format!(
                    "It waits for agent {agent}, the only one with the outputs of job {job}, which is away{since}; \
                     start it again, or start agents with --store to share outputs."
                )
            }
            Self::HeldFiles { job, agent, .. } => {
                format!("It waits for capacity on agent {agent}, the only one with the outputs of job {job}.")
            }
            Self::OnAgent { agent, code, since } => {
                let agent = agent.as_deref().unwrap_or("unknown");
                format!("Agent {agent} has it; status {code} since {}.", super::at(*since))
            }
            Self::AgentSilent { agent, since, code } => {
                format!(
                    "Its agent {agent} has been silent since {}; the last status is {code}.",
                    super::at(*since)
                )
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

    /// Returns a command that helps, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoController => Some("tidemill controller".to_owned()),
            Self::Flagged { flag, scope, .. } => Some(format!("tidemill flag clear {flag} --scope {scope}")),
            Self::PoolFull { pool, .. } => Some(format!("tidemill pool set {pool} SIZE")),
            Self::NoAgents { labels } | Self::NoAgentFits { labels, .. } => {
                let mut command = String::from("tidemill agent run");
                for label in labels {
                    command.push_str(" --label ");
                    command.push_str(&quote(label));
                }
                Some(command)
            }
            Self::HeldFiles { away: true, .. } => Some("tidemill agent list".to_owned()),
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

fn no_agent_fits(labels: &[String], agents: usize, lacking: &[String]) -> String {
    let lack = match (agents, lacking.is_empty()) {
        // An agent with all labels that does not match serves another project.
        (1, true) => "it serves another project".to_owned(),
        (1, false) => format!("it lacks {}", lacking.join(", ")),
        (_, true) => "each lacks a label or serves another project".to_owned(),
        (_, false) => format!("none has {}", lacking.join(", ")),
    };
    let needs = if labels.is_empty() {
        "for its project".to_owned()
    } else {
        format!("with the labels {}", labels.join(", "))
    };
    let connected = super::counted(i64::try_from(agents).unwrap_or(i64::MAX), "agent is", "agents are");
    format!("It needs an agent {needs}; {connected} connected, but {lack}.")
}

fn flagged(flag: FlagName, scope: &str, note: Option<&str>, until: Option<Timestamp>) -> String {
    let what = scope.split_once(':').map_or(scope.to_owned(), |(kind, name)| format!("{kind} {name}"));
    let note = note.map_or_else(String::new, |note| format!(" ({note})"));
    let until = until.map_or_else(String::new, |until| format!(" until {}", super::at(until)));
    match flag {
        FlagName::Paused => format!("Its {what} is paused{until}{note}."),
        FlagName::Maintenance => format!("The database is under maintenance{until}{note}."),
        FlagName::Reboot => format!("The {what} is about to restart{until}{note}."),
        FlagName::ProbeOff => format!("Results of probes are ignored{until}{note}."),
    }
}

impl GraphReason {
    /// Returns the reason as a sentence.
    pub fn sentence(&self) -> String {
        format!("{} of {} jobs have ended. Job {}: {}", self.ended, self.of, self.job, self.reason.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_use_singular_and_plural() {
        let full = |agents| JobReason::AgentsFull { weight: 2, agents, free: 1 }.sentence();
        assert_eq!(full(1), "It needs capacity 2; the only agent that could take it has 1 free.");
        let several = "It needs capacity 2; none of the 3 agents that could take it has more than 1 free.";
        assert_eq!(full(3), several);
        let unfit = |agents, lacking: &[&str]| {
            let lacking = lacking.iter().map(|label| (*label).to_owned()).collect();
            let labels = vec!["gpu".to_owned(), "arm".to_owned()];
            let sentences = JobReason::NoAgentFits { labels, agents, lacking }.sentence();
            sentences.strip_prefix("It needs an agent with the labels gpu, arm; ").map(str::to_owned)
        };
        let sentences = [unfit(1, &["gpu"]), unfit(1, &[]), unfit(2, &["gpu"]), unfit(2, &[])];
        let expected = [
            "1 agent is connected, but it lacks gpu.",
            "1 agent is connected, but it serves another project.",
            "2 agents are connected, but none has gpu.",
            "2 agents are connected, but each lacks a label or serves another project.",
        ];
        assert_eq!(sentences.map(Option::unwrap_or_default), expected);
    }
}
