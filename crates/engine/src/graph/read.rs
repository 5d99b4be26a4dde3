//! Queries for graphs, jobs, tasks and logs.

use super::Graphs;
use super::operate::unknown;
use tidemill_core::RunId;
use tidemill_core::graph::record::{GraphRecord, JobDetail, JobNeeds, JobRecord, LogPiece, TaskRecord};
use tidemill_store::{Error, JobPage, RefusalCode};

impl Graphs {
    /// Returns a graph with its counts, or an error if it does not exist.
    pub async fn graph(&self, run: &RunId) -> Result<GraphRecord, Error> {
        self.engine.store().graph(run.clone()).await?.ok_or_else(|| unknown(run))
    }

    /// Lists jobs of a graph.
    pub async fn jobs(&self, run: &RunId, page: JobPage) -> Result<Vec<JobRecord>, Error> {
        self.engine.store().jobs(run.clone(), page).await
    }

    /// Returns the needs of the jobs at positions greater than `after` and up to `last`.
    pub async fn needs(&self, run: &RunId, after: i32, last: i32) -> Result<Vec<JobNeeds>, Error> {
        self.engine.store().needs(run.clone(), after, last).await
    }

    /// Returns the id of the job with this name, or an error if it does not exist.
    pub async fn find_job(&self, run: &RunId, name: &str) -> Result<String, Error> {
        let found = self.engine.store().find_job(run.clone(), name.to_owned()).await?;
        let message = format!("graph {run} has no job `{name}`");
        found.ok_or_else(|| Error::refused(RefusalCode::UnknownJob, message))
    }

    /// Returns a job, or an error if it does not exist.
    pub async fn job_record(&self, job: &str) -> Result<JobRecord, Error> {
        self.engine.store().job(job.to_owned()).await?.ok_or_else(|| unknown_job(job))
    }

    /// Returns a job with its tasks and outputs, or an error if it does not exist.
    pub async fn job(&self, job: &str) -> Result<JobDetail, Error> {
        self.engine.store().job_detail(job.to_owned()).await?.ok_or_else(|| unknown_job(job))
    }

    /// Returns a task, or an error if it does not exist.
    pub async fn task(&self, task: &str) -> Result<TaskRecord, Error> {
        let message = format!("task `{task}` does not exist");
        let found = self.engine.store().task(task.to_owned()).await?;
        found.ok_or_else(|| Error::refused(RefusalCode::UnknownTask, message))
    }

    /// Lists jobs that agents hold, of one project or of all.
    pub async fn held_jobs(&self, project: Option<&str>, limit: usize) -> Result<Vec<JobRecord>, Error> {
        self.engine.store().held_jobs(project.map(str::to_owned), limit).await
    }

    /// Returns the last log chunks of a task, in order.
    pub async fn logs_last(&self, task: &str, limit: usize) -> Result<Vec<LogPiece>, Error> {
        self.engine.store().task_logs_last(task.to_owned(), limit).await
    }

    /// Returns log chunks of a task after a sequence number.
    pub async fn logs(&self, task: &str, after: Option<i32>, limit: usize) -> Result<Vec<LogPiece>, Error> {
        self.engine.store().task_logs(task.to_owned(), after, limit).await
    }
}

pub(super) fn unknown_job(job: &str) -> Error {
    Error::refused(RefusalCode::UnknownJob, format!("job `{job}` does not exist"))
}
