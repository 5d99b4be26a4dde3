//! Graphs, their jobs, agents as people see them, pools, and the restart of the site.

use crate::{Call, Client, Error, part, query, read};
use http::Method;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::{GraphRecord, JobDetail, JobNeeds, JobRecord, PoolRecord, RebootStatus};
use tidemill_core::run::Retried;
use tidemill_wire::Page;
use tidemill_wire::graphs::{
    AgentForgotten, CancelGraph, CheckGraph, DrainAgent, ForgetAgent, GraphCancelled, GraphChecked,
    GraphSubmitted, JobLogs, JobWhy, ListJobs, ListNeeds, NewGraph, PrepareReboot, PutPool, ReadLogs,
    RetryGraph,
};
use tidemill_wire::projects::Resumed;
use uuid::Uuid;

/// How much longer than asked an answer that waits may take.
const MARGIN: Duration = Duration::from_secs(20);
/// How long a graph may take to be read and kept.
const SUBMIT: Duration = Duration::from_mins(2);

impl Client {
    /// Everything that is wrong with a graph.
    pub async fn check_graph(&self, text: &str) -> Result<GraphChecked, Error> {
        self.post("/v1/graphs/check".to_owned(), &CheckGraph { text: text.to_owned() }).await
    }

    /// Submits a graph; under the same key it is the same run.
    pub async fn submit_graph(&self, graph: &NewGraph, key: Option<String>) -> Result<GraphSubmitted, Error> {
        let call = Call {
            method: Method::POST,
            path: "/v1/graphs".to_owned(),
            idempotency_key: key,
            body: Some(crate::encoded(graph)?),
            patience: SUBMIT,
        };
        read(&self.send(call).await?)
    }

    /// A graph, and how many of its jobs are where.
    pub async fn graph(&self, run: &RunId) -> Result<GraphRecord, Error> {
        self.get(format!("/v1/graphs/{}", run.in_path())).await
    }

    /// Jobs of a graph; waits for a change where asked.
    pub async fn jobs(&self, run: &RunId, asked: &ListJobs) -> Result<Page<JobRecord>, Error> {
        self.waiting(format!("/v1/graphs/{}/jobs{}", run.in_path(), query(asked)?), asked.wait_secs).await
    }

    /// Which jobs of a graph need which, by their places.
    pub async fn needs(&self, run: &RunId, asked: &ListNeeds) -> Result<Page<JobNeeds>, Error> {
        self.get(format!("/v1/graphs/{}/needs{}", run.in_path(), query(asked)?)).await
    }

    /// Stops a graph, or some of its jobs.
    pub async fn cancel_graph(&self, run: &RunId, cancel: &CancelGraph) -> Result<GraphCancelled, Error> {
        self.post(format!("/v1/graphs/{}/cancel", run.in_path()), cancel).await
    }

    /// Queues another try of a graph that has ended.
    pub async fn retry_graph(&self, run: &RunId, retry: &RetryGraph) -> Result<Retried, Error> {
        self.post(format!("/v1/graphs/{}/retry", run.in_path()), retry).await
    }

    /// The jobs that agents have, over all graphs.
    pub async fn held_jobs(&self) -> Result<Page<JobRecord>, Error> {
        self.get("/v1/jobs".to_owned()).await
    }

    /// A job with everything that belongs to it.
    pub async fn job(&self, job: &str) -> Result<JobDetail, Error> {
        self.get(format!("/v1/jobs/{}", part(job))).await
    }

    /// Why a job is where it is.
    pub async fn why_job(&self, job: &str) -> Result<JobWhy, Error> {
        self.get(format!("/v1/jobs/{}/why", part(job))).await
    }

    /// Runs a job of an ended graph again, with everything after it.
    pub async fn retry_job(&self, job: &str) -> Result<Retried, Error> {
        self.post(format!("/v1/jobs/{}/retry", part(job)), &serde_json::json!({})).await
    }

    /// What an attempt of a job wrote; waits for more where asked.
    pub async fn job_logs(&self, job: &str, asked: &ReadLogs) -> Result<JobLogs, Error> {
        self.waiting(format!("/v1/jobs/{}/logs{}", part(job), query(asked)?), asked.wait_secs).await
    }

    /// The agents.
    pub async fn agents(&self) -> Result<Page<Agent>, Error> {
        self.get("/v1/agents".to_owned()).await
    }

    /// Lets an agent get no new tasks, or get them again.
    pub async fn drain_agent(&self, agent: Uuid, draining: bool) -> Result<Agent, Error> {
        self.post(format!("/v1/agents/{agent}/drain"), &DrainAgent { draining }).await
    }

    /// Says that nothing of an agent runs any more, where it is silent; with `force`, whatever was heard of it.
    pub async fn forget_agent(&self, agent: Uuid, forget: ForgetAgent) -> Result<AgentForgotten, Error> {
        let path = format!("/v1/agents/{agent}/forget?force={}", forget.force);
        self.post(path, &serde_json::json!({})).await
    }

    /// The pools.
    pub async fn pools(&self) -> Result<Page<PoolRecord>, Error> {
        self.get("/v1/pools".to_owned()).await
    }

    /// Makes a pool, or changes its size.
    pub async fn put_pool(&self, name: &str, size: i32) -> Result<PoolRecord, Error> {
        self.ask(Method::PUT, format!("/v1/pools/{}", part(name)), Some(&PutPool { size }), None).await
    }

    /// Removes a pool.
    pub async fn remove_pool(&self, name: &str) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/pools/{}", part(name)), None::<&()>).await
    }

    /// Whether the site can be restarted.
    pub async fn reboot_status(&self) -> Result<RebootStatus, Error> {
        self.get("/v1/reboot".to_owned()).await
    }

    /// Prepares for a restart.
    pub async fn prepare_for_reboot(&self, note: Option<String>) -> Result<RebootStatus, Error> {
        self.post("/v1/reboot".to_owned(), &PrepareReboot { note }).await
    }

    /// Says that a restart is over, or does not take place.
    pub async fn end_reboot(&self) -> Result<Resumed, Error> {
        self.ask(Method::DELETE, "/v1/reboot".to_owned(), None::<&()>, None).await
    }

    async fn waiting<T: serde::de::DeserializeOwned>(
        &self,
        path: String,
        wait_secs: Option<u16>,
    ) -> Result<T, Error> {
        let patience = Duration::from_secs(wait_secs.unwrap_or_default().into()) + MARGIN;
        let call = Call { method: Method::GET, path, idempotency_key: None, body: None, patience };
        read(&self.send(call).await?)
    }
}
