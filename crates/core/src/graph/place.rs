//! Where a job can be carried out, by where the files are that it needs.
//!
//! What is in a store is everywhere. What is not lies on the disk of the agent that made it, and only that agent can
//! carry out what needs it.

use uuid::Uuid;

/// Files of a needed job that no store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The name of the needed job.
    pub job: String,
    /// The agent that has them; nobody, where it was forgotten or has removed them.
    pub agent: Option<Holder>,
}

/// An agent that has files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its id.
    pub agent_id: Uuid,
    /// Its name.
    pub name: String,
}

/// Where a job can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// By any agent.
    Anywhere,
    /// By this agent alone.
    On(Uuid),
    /// By nobody, for this reason.
    Nowhere(String),
}

/// Where a job can be carried out that needs these files.
pub fn place(needs: &[Held]) -> Place {
    let mut first: Option<(&str, &Holder)> = None;
    for held in needs {
        let Some(agent) = &held.agent else {
            return Place::Nowhere(format!(
                "what job {} left is gone: it was on one agent alone, which was forgotten or has removed it; try \
                 the graph again, and job {} runs again",
                held.job, held.job
            ));
        };
        match first {
            Some((job, other)) if other.agent_id != agent.agent_id => {
                return Place::Nowhere(format!(
                    "what it needs is on the disks of two agents: job {job} left files on {}, and job {} on {}; \
                     start agents with --store, or try the graph again to have both from one",
                    other.name, held.job, agent.name
                ));
            }
            Some(_) => {}
            None => first = Some((&held.job, agent)),
        }
    }
    first.map_or(Place::Anywhere, |(_, agent)| Place::On(agent.agent_id))
}

/// Which needed jobs have to run again before another job can: those whose files are gone, and those whose files are
/// not where most of the rest are.
pub fn out_of_reach(needs: &[Held]) -> Vec<&str> {
    let count = |agent: Uuid| needs.iter().filter(|held| held.is_on(agent)).count();
    let agents = needs.iter().filter_map(|held| held.agent.as_ref().map(|agent| agent.agent_id));
    // Of several the smallest id, so that asking twice gives the same answer.
    let home = agents.max_by_key(|agent| (count(*agent), std::cmp::Reverse(*agent)));
    let is_away = |held: &&Held| home.is_none_or(|home| !held.is_on(home));
    needs.iter().filter(is_away).map(|held| held.job.as_str()).collect()
}

impl Held {
    fn is_on(&self, agent: Uuid) -> bool {
        self.agent.as_ref().is_some_and(|holder| holder.agent_id == agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(job: &str, agent: Option<u128>) -> Held {
        let holder = |id| Holder { agent_id: Uuid::from_u128(id), name: format!("agent-{id}") };
        Held { job: job.to_owned(), agent: agent.map(holder) }
    }

    #[test]
    fn a_job_goes_where_its_needs_are() {
        assert_eq!(place(&[]), Place::Anywhere);
        assert_eq!(place(&[held("a", Some(1)), held("b", Some(1))]), Place::On(Uuid::from_u128(1)));
    }

    #[test]
    fn what_nobody_can_bring_together_has_a_reason() {
        let Place::Nowhere(gone) = place(&[held("a", Some(1)), held("b", None)]) else {
            panic!("it is gone")
        };
        assert!(gone.contains("job b left is gone") && gone.contains("try the graph again"), "{gone}");
        let Place::Nowhere(split) = place(&[held("a", Some(1)), held("b", Some(2))]) else {
            panic!("they are apart")
        };
        assert!(split.contains("job a left files on agent-1, and job b on agent-2"), "{split}");
    }

    #[test]
    fn as_little_as_possible_runs_again() {
        assert!(out_of_reach(&[]).is_empty());
        assert_eq!(out_of_reach(&[held("a", None)]), ["a"]);
        let apart = [held("a", Some(1)), held("b", Some(2)), held("c", Some(2)), held("d", None)];
        assert_eq!(out_of_reach(&apart), ["a", "d"]);
        // What is left is in one place.
        let even = [held("a", Some(1)), held("b", Some(2))];
        assert_eq!(out_of_reach(&even), ["b"]);
    }
}
