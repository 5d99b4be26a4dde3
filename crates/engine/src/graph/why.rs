//! Explanations of the state of a job or a graph.

use super::Graphs;
use super::read::unknown_job;
use crate::Engine;
use tidemill_core::RunId;
use tidemill_core::why::{GraphReason, JobReason, explain_job};
use tidemill_store::Error;

impl Graphs {
    /// Explains the state of a job.
    pub async fn why_job(&self, job: &str) -> Result<JobReason, Error> {
        let facts = self.engine.store().job_facts(job.to_owned(), self.now()).await?;
        Ok(explain_job(&facts.ok_or_else(|| unknown_job(job))?))
    }
}

impl Engine {
    /// Explains what a graph waits for; `None` if it has ended.
    pub(crate) async fn why_graph(&self, run: &RunId) -> Result<Option<GraphReason>, Error> {
        let Some(facts) = self.store.graph_facts(run.clone(), self.clock.now()).await? else {
            return Ok(None);
        };
        let Some(graph) = self.store.graph(run.clone()).await? else { return Ok(None) };
        Ok(Some(GraphReason {
            job: facts.job.name.clone(),
            job_id: facts.job.job_id.clone(),
            reason: explain_job(&facts),
            ended: graph.counts.total - graph.counts.pending - graph.counts.running,
            of: graph.counts.total,
        }))
    }
}
