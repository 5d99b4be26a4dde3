//! Placement: which agents can execute a job, given the location of its inputs.
//!
//! Files in an object store are available to every agent. Other files are on the disk of the agent that produced them,
//! so only that agent can execute the jobs that need them.

use uuid::Uuid;

/// Outputs of a needed job that are on one agent's disk and not in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOutputs {
    /// Name of the needed job.
    pub job: String,
    /// The agent that has the files; `None` if it was forgotten or has deleted them.
    pub agent: Option<OutputHolder>,
}

/// An agent that has outputs on its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputHolder {
    pub agent_id: Uuid,
    pub name: String,
}

/// The agents that can execute a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    Anywhere,
    On(Uuid),
    /// No agent, for this reason.
    Nowhere(String),
}

/// Returns the agents that can execute a job with these inputs.
pub fn decide_placement(needs: &[LocalOutputs]) -> Placement {
    let mut first: Option<(&str, &OutputHolder)> = None;
    for held in needs {
        let Some(agent) = &held.agent else {
            return Placement::Nowhere(format!(
                "the outputs of job {} are gone: they were on one agent, which was forgotten or has deleted them; \
                 retry the graph to run job {} again",
                held.job, held.job
            ));
        };
        match first {
            Some((job, other)) if other.agent_id != agent.agent_id => {
                return Placement::Nowhere(format!(
                    "its inputs are on the disks of two agents: outputs of job {job} on {}, outputs of job {} on {}; \
                     start the agents with --store, or retry the graph to produce both on one agent",
                    other.name, held.job, agent.name
                ));
            }
            Some(_) => {}
            None => first = Some((&held.job, agent)),
        }
    }
    first.map_or(Placement::Anywhere, |(_, agent)| Placement::On(agent.agent_id))
}

/// Returns the needed jobs that must run again: those whose files are gone, and those whose files are not on the agent
/// with most of the inputs.
pub fn jobs_to_rerun(needs: &[LocalOutputs]) -> Vec<&str> {
    let count = |agent: Uuid| needs.iter().filter(|held| held.is_on(agent)).count();
    let agents = needs.iter().filter_map(|held| held.agent.as_ref().map(|agent| agent.agent_id));
    // The smallest id breaks ties, so that the result is deterministic.
    let main = agents.max_by_key(|agent| (count(*agent), std::cmp::Reverse(*agent)));
    let is_elsewhere = |held: &&LocalOutputs| main.is_none_or(|main| !held.is_on(main));
    needs.iter().filter(is_elsewhere).map(|held| held.job.as_str()).collect()
}

impl LocalOutputs {
    fn is_on(&self, agent: Uuid) -> bool {
        self.agent.as_ref().is_some_and(|holder| holder.agent_id == agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(job: &str, agent: Option<u128>) -> LocalOutputs {
        let holder = |id| OutputHolder { agent_id: Uuid::from_u128(id), name: format!("agent-{id}") };
        LocalOutputs { job: job.to_owned(), agent: agent.map(holder) }
    }

    #[test]
    fn job_is_placed_on_the_agent_with_its_inputs() {
        assert_eq!(decide_placement(&[]), Placement::Anywhere);
        assert_eq!(
            decide_placement(&[held("a", Some(1)), held("b", Some(1))]),
            Placement::On(Uuid::from_u128(1))
        );
    }

    #[test]
    fn unreachable_inputs_have_a_reason() {
        let Placement::Nowhere(gone) = decide_placement(&[held("a", Some(1)), held("b", None)]) else {
            panic!("no placement expected")
        };
        assert!(gone.contains("outputs of job b are gone") && gone.contains("retry the graph"), "{gone}");
        let Placement::Nowhere(split) = decide_placement(&[held("a", Some(1)), held("b", Some(2))]) else {
            panic!("no placement expected")
        };
        assert!(split.contains("outputs of job a on agent-1, outputs of job b on agent-2"), "{split}");
    }

    #[test]
    fn fewest_possible_jobs_run_again() {
        assert!(jobs_to_rerun(&[]).is_empty());
        assert_eq!(jobs_to_rerun(&[held("a", None)]), ["a"]);
        let apart = [held("a", Some(1)), held("b", Some(2)), held("c", Some(2)), held("d", None)];
        assert_eq!(jobs_to_rerun(&apart), ["a", "d"]);
        // The remaining inputs are on one agent.
        let even = [held("a", Some(1)), held("b", Some(2))];
        assert_eq!(jobs_to_rerun(&even), ["b"]);
    }
}
