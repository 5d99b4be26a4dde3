//! Jobs as users and submissions see them. The controller's reads and writes are in `controller.rs`.

use crate::codec::{Columns, SqlJson, SqlTextList, from_json};
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::graph::JobSpec;
use tidemill_core::graph::definition::OnAgentLost;
use tidemill_core::graph::record::{JobChange, JobDetail, JobOutput, JobRecord};
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::task::Output;
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

/// Maximum number of rows per INSERT.
const ROWS: usize = 5_000;

impl FromColumns for JobRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let code: StatusCode = row.parsed("code")?;
        Ok(Self {
            job_id: row.text("job_id")?,
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            workspace: row.text("workspace")?,
            name: row.text("name")?,
            position: row.int("position")?,
            state: code.state(),
            code,
            message: row.text_or_null("message")?,
            requested: row.truth("requested")?,
            reused_from: row.text_or_null("reused_from")?,
            weight: row.int("weight")?,
            pool: row.text_or_null("pool")?,
            task_id: row.text_or_null("task_id")?,
            tasks: row.int("task_number")?,
            agent_id: row.uuid_or_null("agent_id")?,
            exit_code: row.int_or_null("exit_code")?,
            errors: row.int("errors")?,
            failures: row.int("failures")?,
            not_before: row.time_or_null("not_before")?,
            stopping: row.truth("stopping")?,
            cancelled_at: row.time_or_null("cancelled_at")?,
            cancelled_by: row.text_or_null("cancelled_by")?,
            version: row.long("version")?,
            created_at: row.time("created_at")?,
            started_at: row.time_or_null("started_at")?,
            ended_at: row.time_or_null("ended_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

impl FromColumns for JobChange {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            seq: row.int("seq")?,
            from_code: row.parsed("from_code")?,
            to_code: row.parsed("to_code")?,
            message: row.text_or_null("message")?,
            at: row.time("at")?,
        })
    }
}

impl FromColumns for JobOutput {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("made_by")?,
            job: row.text("job")?,
            agent_id: row.uuid_or_null("agent_id")?,
            output: Output {
                name: row.text("name")?,
                path: row.text("path")?,
                size_bytes: row.long("size_bytes")?,
                sha256: row.text("sha256")?,
                url: row.text_or_null("url")?,
            },
        })
    }
}

/// A job to insert: its definition, with the ids, the position and the reuse that submission has decided.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub job_id: String,
    /// Position in the graph.
    pub position: i32,
    pub spec: JobSpec,
    /// Whether it was requested, not only needed by another job.
    pub requested: bool,
    /// Earlier job whose result is reused.
    pub reused: Option<LatestJob>,
    /// Ids of the jobs that it needs.
    pub needs: Vec<String>,
}

/// The latest job of a name.
#[derive(Debug, Clone, PartialEq)]
pub struct LatestJob {
    pub job_id: String,
    pub name: String,
    pub code: StatusCode,
    pub tasks: i32,
    pub task_id: Option<String>,
    pub agent_id: Option<Uuid>,
    pub exit_code: Option<i32>,
}

impl FromColumns for LatestJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            name: row.text("name")?,
            code: row.parsed("code")?,
            tasks: row.int("task_number")?,
            task_id: row.text_or_null("task_id")?,
            agent_id: row.uuid_or_null("agent_id")?,
            exit_code: row.int_or_null("exit_code")?,
        })
    }
}

/// A job of a run that another run retries.
#[derive(Debug, Clone, PartialEq)]
pub struct OldJob {
    /// Its state at the end.
    pub last: LatestJob,
    pub spec: JobSpec,
    /// Whether it was requested, not only needed by another job.
    pub requested: bool,
}

impl FromColumns for OldJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let spec = from_json("spec", row.json("spec")?)?;
        Ok(Self { last: LatestJob::read(row)?, spec, requested: row.truth("requested")? })
    }
}

struct Spec(Json);

impl FromColumns for Spec {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.json("spec")?))
    }
}

struct Need(String, StatusCode);

impl FromColumns for Need {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("name")?, row.parsed("code")?))
    }
}

/// Which jobs of a run to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobPage {
    /// Returns jobs that changed after this version, in order of their changes. The next two filters are then ignored.
    pub changed_after: Option<i64>,
    /// Returns jobs after this position in the graph.
    pub after_position: Option<i32>,
    /// Returns jobs in this state.
    pub state: Option<JobState>,
    pub limit: usize,
}

/// Returns the status codes of running jobs.
pub(crate) fn running_codes() -> SqlTextList {
    codes_of(JobState::Running)
}

/// Returns the status codes of a state.
fn codes_of(state: JobState) -> SqlTextList {
    let codes = StatusCode::ALL.iter().filter(|code| code.state() == state);
    SqlTextList(codes.map(ToString::to_string).collect())
}

impl Tx<'_> {
    /// Formats a time for rows that are sent as JSON.
    pub(crate) fn stamp(&self, at: Option<Timestamp>) -> Json {
        match (&self.conn, at) {
            (_, None) => Json::Null,
            (Conn::Postgres(_), Some(at)) => Json::from(at.to_rfc3339()),
            (Conn::Sqlite(_), Some(at)) => Json::from(at.timestamp_micros()),
        }
    }

    /// Writes the jobs of a run, their dependencies and their reused outputs.
    pub async fn add_jobs(
        &mut self,
        run: &RunId,
        project: &str,
        workspace: &str,
        jobs: &[NewJob],
        now: Timestamp,
    ) -> Result<(), Error> {
        for part in jobs.chunks(ROWS) {
            let rows: Vec<Json> =
                part.iter().map(|job| self.job_row(run, project, workspace, job, now)).collect();
            on!(self, catalog::JOB_INSERT, [SqlJson(Json::from(rows.clone()))], execute, "write jobs")?;
        }
        let needs: Vec<Json> = jobs
            .iter()
            .flat_map(|job| {
                job.needs.iter().map(|needs| serde_json::json!({"job_id": job.job_id, "needs": needs}))
            })
            .collect();
        for part in needs.chunks(4 * ROWS) {
            on!(self, catalog::NEED_INSERT, [SqlJson(Json::from(part.to_vec()))], execute, "write jobs")?;
        }
        on!(self, catalog::OUTPUT_COPY, [run.as_str()], execute, "copy outputs")?;
        Ok(())
    }

    fn job_row(&self, run: &RunId, project: &str, workspace: &str, job: &NewJob, now: Timestamp) -> Json {
        let spec = &job.spec;
        let lost_secs = match spec.on_agent_lost {
            OnAgentLost::Wait => None,
            OnAgentLost::RerunAfter(secs) => Some(secs),
        };
        let reused = job.reused.as_ref();
        let code = if reused.is_some() { StatusCode::Succeeded } else { StatusCode::Created };
        serde_json::json!({
            "job_id": job.job_id,
            "run_id": run,
            "position": job.position,
            "project_id": project,
            "workspace": workspace,
            "name": spec.name,
            "spec": spec,
            "requested": job.requested,
            "reused_from": reused.map(|last| &last.job_id),
            "labels": spec.labels,
            "weight": spec.weight,
            "pool": spec.pool,
            "retries": spec.retries,
            "lost_secs": lost_secs,
            "code": code,
            "task_number": reused.map_or(0, |last| last.tasks),
            "task_id": reused.and_then(|last| last.task_id.as_ref()),
            "agent_id": reused.and_then(|last| last.agent_id),
            "exit_code": reused.and_then(|last| last.exit_code),
            "created_at": self.stamp(Some(now)),
            "ended_at": self.stamp(reused.map(|_| now)),
        })
    }

    /// Returns the latest job of each name in a workspace.
    pub async fn latest_jobs(
        &mut self,
        project: &str,
        workspace: &str,
        names: Vec<String>,
    ) -> Result<Vec<LatestJob>, Error> {
        let names = SqlTextList(names);
        on!(self, catalog::JOB_LATEST, [project, workspace, names.clone()], fetch_all, "find jobs")?
            .records("find jobs")
    }

    /// Returns the jobs of the run to retry, in graph order.
    pub async fn old_jobs(&mut self, run: &RunId) -> Result<Vec<OldJob>, Error> {
        on!(self, catalog::JOB_SPECS, [run.as_str()], fetch_all, "read jobs")?.records("read jobs")
    }

    /// Returns those of the names that belong to jobs of a run.
    pub async fn job_names(&mut self, run: &RunId, names: Vec<String>) -> Result<Vec<String>, Error> {
        let names = SqlTextList(names);
        on!(self, catalog::JOB_NAMES, [run.as_str(), names.clone()], fetch_all, "find jobs")?
            .records("find jobs")
    }

    /// Records a cancel request for live jobs of a run, for all of them if none is named; returns how many.
    pub async fn cancel_jobs(
        &mut self,
        run: &RunId,
        names: &[String],
        by: &str,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let now = self.time(now);
        let updated = if names.is_empty() {
            on!(self, catalog::JOB_CANCEL, [run.as_str(), by, now], execute, "cancel jobs")?
        } else {
            let names = SqlTextList(names.to_vec());
            let binds = (run.as_str(), by);
            on!(
                self,
                catalog::JOB_CANCEL_NAMED,
                [binds.0, binds.1, now, names.clone()],
                execute,
                "cancel jobs"
            )?
        };
        Ok(updated.count())
    }

    /// Marks a job or a run as changed, so that the controller reads it.
    pub async fn mark_changed(&mut self, subject: &str) -> Result<(), Error> {
        on!(self, catalog::CHANGE_PUT, [subject], execute, "record a change")?;
        Ok(())
    }

    pub async fn job(&mut self, job: &str) -> Result<Option<JobRecord>, Error> {
        on!(self, catalog::JOB_GET, [job], fetch_optional, "read a job")?.record("read a job")
    }

    pub async fn job_spec(&mut self, job: &str) -> Result<Option<JobSpec>, Error> {
        let found: Option<Spec> =
            on!(self, catalog::JOB_SPEC, [job], fetch_optional, "read a job")?.record("read a job")?;
        let Some(Spec(json)) = found else { return Ok(None) };
        from_json("spec", json).map(Some).map_err(|source| Error::database("read a job", source))
    }

    /// Returns the needed jobs that have not succeeded.
    pub async fn open_needs(&mut self, job: &str) -> Result<Vec<(String, StatusCode)>, Error> {
        let needs: Vec<Need> =
            on!(self, catalog::NEED_OPEN, [job], fetch_all, "read needs")?.records("read needs")?;
        Ok(needs.into_iter().map(|Need(name, code)| (name, code)).collect())
    }

    /// Returns the job that best explains what a graph waits for.
    pub async fn job_to_explain(&mut self, run: &RunId) -> Result<Option<JobRecord>, Error> {
        let codes = running_codes();
        on!(self, catalog::JOB_WHY_NEXT, [run.as_str(), codes.clone()], fetch_optional, "read jobs")?
            .record("read jobs")
    }

    pub async fn job_outputs(&mut self, job: &str) -> Result<Vec<JobOutput>, Error> {
        on!(self, catalog::OUTPUT_LIST, [job], fetch_all, "list outputs")?.records("list outputs")
    }
}

impl Store {
    pub async fn job(&self, job: String) -> Result<Option<JobRecord>, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.job(&job).await })).await
    }

    /// Returns the id of the job of that name.
    pub async fn find_job(&self, run: RunId, name: String) -> Result<Option<String>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let binds = (run.as_str(), name.as_str());
                on!(tx, catalog::JOB_FIND, [binds.0, binds.1], fetch_optional, "find a job")?
                    .record("find a job")
            })
        })
        .await
    }

    /// Lists jobs of a run.
    pub async fn jobs(&self, run: RunId, page: JobPage) -> Result<Vec<JobRecord>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(page.limit.clamp(1, BATCH_MAX)).unwrap_or(i64::MAX);
                let (run, position) = (run.as_str(), page.after_position.unwrap_or(-1));
                let rows = match (page.changed_after, page.state) {
                    (Some(after), _) => {
                        on!(tx, catalog::JOB_LIST_CHANGED, [run, after, limit], fetch_all, "list jobs")?
                    }
                    (None, Some(state)) => {
                        let codes = codes_of(state);
                        on!(
                            tx,
                            catalog::JOB_LIST_CODES,
                            [run, position, limit, codes],
                            fetch_all,
                            "list jobs"
                        )?
                    }
                    (None, None) => {
                        on!(tx, catalog::JOB_LIST, [run, position, limit], fetch_all, "list jobs")?
                    }
                };
                rows.records("list jobs")
            })
        })
        .await
    }

    /// Lists running jobs, of a project or of all, and ended jobs whose command may still run.
    pub async fn held_jobs(&self, project: Option<String>, limit: usize) -> Result<Vec<JobRecord>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit.clamp(1, BATCH_MAX)).unwrap_or(i64::MAX);
                let codes = running_codes();
                Ok(on!(tx, catalog::JOB_HELD, [codes, project.as_deref(), limit], fetch_all, "list jobs")?
                    .readable("jobs", "job_id"))
            })
        })
        .await
    }

    /// Returns a job with its specification, tasks and outputs.
    pub async fn job_detail(&self, job: String) -> Result<Option<JobDetail>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let Some(record) = tx.job(&job).await? else { return Ok(None) };
                let Some(spec) = tx.job_spec(&job).await? else { return Ok(None) };
                let tasks = tx.tasks_of_job(&job).await?;
                let changes = on!(tx, catalog::JOB_EVENT_LIST, [job.as_str()], fetch_all, "list changes")?
                    .records("list changes")?;
                let outputs = tx.job_outputs(&job).await?;
                Ok(Some(JobDetail { job: record, spec, tasks, changes, outputs }))
            })
        })
        .await
    }
}
