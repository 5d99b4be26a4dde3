//! Graphs, jobs, the operator's view of agents, pools and the site restart.

use crate::{ApiRequest, Client, Error, decode, path_segment, query};
use http::Method;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::{GraphRecord, JobDetail, JobNeeds, JobRecord, PoolRecord, RebootStatus};
use tidemill_core::run::RetryOutcome;
use tidemill_wire::Page;
use tidemill_wire::graphs::{
    CancelGraph, CancelGraphResponse, CheckGraph, CheckGraphResponse, DrainAgent, ForgetAgent,
    ForgetAgentResponse, JobLogs, JobWhy, ListJobs, ListNeeds, NewGraph, NewGraphResponse, PrepareReboot,
    PutPool, ReadLogs, RetryGraph,
};
use tidemill_wire::projects::ResumeResponse;
use uuid::Uuid;

/// Extra time for the response to a long poll, on top of the requested wait.
const POLL_MARGIN: Duration = Duration::from_secs(20);
/// Time limit for validating and storing a submitted graph.
const SUBMIT_TIMEOUT: Duration = Duration::from_mins(2);

impl Client {
    /// Validates a graph and returns all of its errors.
    pub async fn check_graph(&self, text: &str) -> Result<CheckGraphResponse, Error> {
        self.post("/v1/graphs/check".to_owned(), &CheckGraph { text: text.to_owned() }).await
    }

    /// Submits a graph. A repeated request with the same key returns the existing run.
    pub async fn submit_graph(
        &self,
        graph: &NewGraph,
        key: Option<String>,
    ) -> Result<NewGraphResponse, Error> {
        let request = ApiRequest {
            method: Method::POST,
            path: "/v1/graphs".to_owned(),
            idempotency_key: key,
            body: Some(crate::encode(graph)?),
            timeout: SUBMIT_TIMEOUT,
        };
        decode(&self.send(request).await?)
    }

    /// Returns a graph with the number of its jobs in each state.
    pub async fn graph(&self, run: &RunId) -> Result<GraphRecord, Error> {
        self.get(format!("/v1/graphs/{}", run.in_path())).await
    }

    /// Lists jobs of a graph. With `wait_secs`, waits for a change.
    pub async fn jobs(&self, run: &RunId, params: &ListJobs) -> Result<Page<JobRecord>, Error> {
        self.long_poll(format!("/v1/graphs/{}/jobs{}", run.in_path(), query(params)?), params.wait_secs).await
    }

    /// Lists the dependencies between a graph's jobs, by job position.
    pub async fn needs(&self, run: &RunId, params: &ListNeeds) -> Result<Page<JobNeeds>, Error> {
        self.get(format!("/v1/graphs/{}/needs{}", run.in_path(), query(params)?)).await
    }

    /// Cancels a graph or some of its jobs.
    pub async fn cancel_graph(
        &self,
        run: &RunId,
        cancel: &CancelGraph,
    ) -> Result<CancelGraphResponse, Error> {
        self.post(format!("/v1/graphs/{}/cancel", run.in_path()), cancel).await
    }

    /// Queues a retry of a graph that has ended.
    pub async fn retry_graph(&self, run: &RunId, retry: &RetryGraph) -> Result<RetryOutcome, Error> {
        self.post(format!("/v1/graphs/{}/retry", run.in_path()), retry).await
    }

    /// Lists the jobs that agents hold, over all graphs.
    pub async fn held_jobs(&self) -> Result<Page<JobRecord>, Error> {
        self.get("/v1/jobs".to_owned()).await
    }

    /// Returns a job with its attempts and outputs.
    pub async fn job(&self, job: &str) -> Result<JobDetail, Error> {
        self.get(format!("/v1/jobs/{}", path_segment(job))).await
    }

    /// Explains why a job is in its current state.
    pub async fn why_job(&self, job: &str) -> Result<JobWhy, Error> {
        self.get(format!("/v1/jobs/{}/why", path_segment(job))).await
    }

    /// Retries a job of an ended graph together with all jobs that depend on it.
    pub async fn retry_job(&self, job: &str) -> Result<RetryOutcome, Error> {
        self.post(format!("/v1/jobs/{}/retry", path_segment(job)), &serde_json::json!({})).await
    }

    /// Returns the output of a job's attempt. With `wait_secs`, waits for more.
    pub async fn job_logs(&self, job: &str, params: &ReadLogs) -> Result<JobLogs, Error> {
        self.long_poll(format!("/v1/jobs/{}/logs{}", path_segment(job), query(params)?), params.wait_secs)
            .await
    }

    /// Lists the agents that are registered.
    pub async fn agents(&self) -> Result<Page<Agent>, Error> {
        self.get("/v1/agents".to_owned()).await
    }

    /// Starts or ends the draining of an agent. A draining agent gets no new tasks.
    pub async fn drain_agent(&self, agent: Uuid, draining: bool) -> Result<Agent, Error> {
        self.post(format!("/v1/agents/{agent}/drain"), &DrainAgent { draining }).await
    }

    /// Confirms that no command of an agent is running any more. Refused for an agent that still sends heartbeats,
    /// unless `force` is set.
    pub async fn forget_agent(&self, agent: Uuid, forget: ForgetAgent) -> Result<ForgetAgentResponse, Error> {
        let path = format!("/v1/agents/{agent}/forget?force={}", forget.force);
        self.post(path, &serde_json::json!({})).await
    }

    /// Lists the pools with their use.
    pub async fn pools(&self) -> Result<Page<PoolRecord>, Error> {
        self.get("/v1/pools".to_owned()).await
    }

    /// Creates a pool or changes its size.
    pub async fn put_pool(&self, name: &str, size: i32) -> Result<PoolRecord, Error> {
        self.request(Method::PUT, format!("/v1/pools/{}", path_segment(name)), Some(&PutPool { size }), None)
            .await
    }

    /// Removes the limit of a pool.
    pub async fn remove_pool(&self, name: &str) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/pools/{}", path_segment(name)), None::<&()>)
            .await
    }

    /// Returns whether the site can be restarted now.
    pub async fn reboot_status(&self) -> Result<RebootStatus, Error> {
        self.get("/v1/reboot".to_owned()).await
    }

    /// Starts to prepare the site for a restart.
    pub async fn prepare_for_reboot(&self, note: Option<String>) -> Result<RebootStatus, Error> {
        self.post("/v1/reboot".to_owned(), &PrepareReboot { note }).await
    }

    /// Ends a restart, or calls it off.
    pub async fn end_reboot(&self) -> Result<ResumeResponse, Error> {
        self.request(Method::DELETE, "/v1/reboot".to_owned(), None::<&()>, None).await
    }

    async fn long_poll<T: serde::de::DeserializeOwned>(
        &self,
        path: String,
        wait_secs: Option<u16>,
    ) -> Result<T, Error> {
        let timeout = Duration::from_secs(wait_secs.unwrap_or_default().into()) + POLL_MARGIN;
        let request = ApiRequest { method: Method::GET, path, idempotency_key: None, body: None, timeout };
        decode(&self.send(request).await?)
    }
}
