//! What a controller reads and writes: the live jobs, and one step at a time.
//!
//! Every step raises the version in the lease's row and names the lease's epoch: a controller that was overtaken
//! gets no version, and writes nothing. The row stays locked until the step ends, so versions are committed in
//! their order.

use crate::codec::{At, Columns, Doc, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use std::collections::HashSet;
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode;
use tidemill_core::task::{Stage, TaskKind, TaskResult};
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

/// A live job, as a controller needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveJob {
    /// Its id.
    pub job_id: String,
    /// The run that it belongs to.
    pub run_id: RunId,
    /// Its place in the graph.
    pub position: i32,
    /// Its project.
    pub project_id: String,
    /// Its workspace.
    pub workspace: String,
    /// Its name.
    pub name: String,
    /// What an agent must offer.
    pub labels: Vec<String>,
    /// How much room it takes.
    pub weight: i32,
    /// The pool that bounds it.
    pub pool: Option<String>,
    /// Times it may be tried again after its command ended badly.
    pub retries: i32,
    /// Silence after which it is lost; without it, it waits.
    pub lost_secs: Option<i32>,
    /// Where it is.
    pub code: StatusCode,
    /// What was said about that.
    pub message: Option<String>,
    /// Tasks that came to nothing by no fault of its own.
    pub errors: i32,
    /// Times its command ended badly.
    pub failures: i32,
    /// No new task before this time.
    pub not_before: Option<Timestamp>,
    /// How many tasks it had.
    pub task_number: i32,
    /// Its last task.
    pub task_id: Option<String>,
    /// The agent of that.
    pub agent_id: Option<Uuid>,
    /// What its command ended with.
    pub exit_code: Option<i32>,
    /// Whether an order to stop is not confirmed.
    pub stopping: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its task was made.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether somebody wants it to stop.
    pub cancelled: bool,
}

impl FromColumns for LiveJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            run_id: row.run_id("run_id")?,
            position: row.int("position")?,
            project_id: row.text("project_id")?,
            workspace: row.text("workspace")?,
            name: row.text("name")?,
            labels: row.words("labels")?,
            weight: row.int("weight")?,
            pool: row.text_or_null("pool")?,
            retries: row.int("retries")?,
            lost_secs: row.int_or_null("lost_secs")?,
            code: row.parsed("code")?,
            message: row.text_or_null("message")?,
            errors: row.int("errors")?,
            failures: row.int("failures")?,
            not_before: row.time_or_null("not_before")?,
            task_number: row.int("task_number")?,
            task_id: row.text_or_null("task_id")?,
            agent_id: row.uuid_or_null("agent_id")?,
            exit_code: row.int_or_null("exit_code")?,
            stopping: row.truth("stopping")?,
            created_at: row.time("created_at")?,
            started_at: row.time_or_null("started_at")?,
            ended_at: row.time_or_null("ended_at")?,
            cancelled: row.time_or_null("cancelled_at")?.is_some(),
        })
    }
}

/// Something that a live job needs, and that is not there yet or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNeed {
    /// The job.
    pub job_id: String,
    /// What it needs.
    pub needs: String,
    /// The name of that.
    pub name: String,
    /// Where that is.
    pub code: StatusCode,
}

impl FromColumns for LiveNeed {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            needs: row.text("needs")?,
            name: row.text("name")?,
            code: row.parsed("code")?,
        })
    }
}

/// An order that stands, and what its agent says.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveTask {
    /// Its id.
    pub task_id: String,
    /// The job.
    pub job_id: String,
    /// What kind.
    pub kind: TaskKind,
    /// The agent.
    pub agent_id: Uuid,
    /// How far the agent is.
    pub stage: Option<Stage>,
    /// What came of it.
    pub result: Option<TaskResult>,
    /// Whether it left something that its agent alone has.
    pub keeps: bool,
    /// Of the task that it stops: whether its agent had begun it.
    pub cancelled_begun: bool,
    /// Of the task that it stops: whether it ended by itself.
    pub cancelled_over: bool,
}

impl FromColumns for LiveTask {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let result = row.json_or_null("result")?;
        Ok(Self {
            task_id: row.text("task_id")?,
            job_id: row.text("job_id")?,
            kind: row.parsed("kind")?,
            agent_id: row.uuid("agent_id")?,
            stage: row.parsed_or_null("stage")?,
            result: result.map(crate::tasks::task_result),
            keeps: row.truth("keeps")?,
            cancelled_begun: row.text_or_null("cancelled_stage")?.is_some(),
            cancelled_over: row.truth("cancelled_over")?,
        })
    }
}

/// Something that a controller has to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// A job, or a run.
    pub subject: String,
    /// Which change of it.
    pub version: i64,
}

impl FromColumns for Change {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { subject: row.text("subject")?, version: row.long("version")? })
    }
}

/// A job that was named to a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedJob {
    /// Its id.
    pub job_id: String,
    /// The run that it belongs to.
    pub run_id: RunId,
    /// Whether somebody wants it to stop.
    pub cancelled: bool,
    /// Where it is.
    pub code: StatusCode,
}

impl FromColumns for NamedJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            run_id: row.run_id("run_id")?,
            cancelled: row.truth("cancelled")?,
            code: row.parsed("code")?,
        })
    }
}

/// A job as a controller wants it to be.
#[derive(Debug, Clone, PartialEq)]
pub struct JobWrite {
    /// The job.
    pub job_id: String,
    /// Where the controller believes it to be.
    pub from: StatusCode,
    /// Where it goes.
    pub code: StatusCode,
    /// What is said about that.
    pub message: Option<String>,
    /// Tasks that came to nothing by no fault of its own.
    pub errors: i32,
    /// Times its command ended badly.
    pub failures: i32,
    /// No new task before this time.
    pub not_before: Option<Timestamp>,
    /// How many tasks it had.
    pub task_number: i32,
    /// Its last task.
    pub task_id: Option<String>,
    /// The agent of that.
    pub agent_id: Option<Uuid>,
    /// What its command ended with.
    pub exit_code: Option<i32>,
    /// Whether an order to stop is not confirmed.
    pub stopping: bool,
    /// When its task was made.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// An order that is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// Its id.
    pub task_id: String,
    /// The job.
    pub job_id: String,
    /// The run.
    pub run_id: RunId,
    /// What kind.
    pub kind: TaskKind,
    /// Which try of the job.
    pub number: i32,
    /// The agent.
    pub agent_id: Uuid,
    /// The task that it stops.
    pub cancels: Option<String>,
}

/// An order that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndTask {
    /// Its id.
    pub task_id: String,
    /// Why.
    pub end: TaskEnd,
}

impl EndTask {
    /// What must be true of the task for this to be right: what its agent said meanwhile may change everything.
    const fn believes(&self) -> &'static str {
        match self.end {
            TaskEnd::Withdrawn => "untouched",
            TaskEnd::Lost | TaskEnd::Forgotten => "unanswered",
            TaskEnd::Taken | TaskEnd::Stopped => "anything",
        }
    }
}

impl Tx<'_> {
    /// What a controller has to look at.
    pub async fn changes(&mut self, limit: usize) -> Result<Vec<Change>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::CHANGE_LIST, [limit], fetch_all, "list changes")?.records("list changes")
    }

    /// Every live job, or those of some runs.
    pub async fn live_jobs(&mut self, runs: Option<Vec<String>>) -> Result<Vec<LiveJob>, Error> {
        match runs {
            None => on!(self, catalog::JOB_LIVE, [], fetch_all, "read live jobs")?,
            Some(runs) => on!(self, catalog::JOB_LIVE_OF_RUNS, [Words(runs)], fetch_all, "read live jobs")?,
        }
        .readable_groups("jobs", "job_id", "run_id")
        .map_err(|source| Error::database("read live jobs", source))
    }

    /// Jobs that have ended while a task of them goes on.
    pub async fn astray_jobs(&mut self) -> Result<Vec<LiveJob>, Error> {
        on!(self, catalog::JOB_ASTRAY, [], fetch_all, "read live jobs")?
            .readable_groups("jobs", "job_id", "run_id")
            .map_err(|source| Error::database("read live jobs", source))
    }

    /// What live jobs need and is not there, of every run or of some.
    pub async fn live_needs(&mut self, runs: Option<Vec<String>>) -> Result<Vec<LiveNeed>, Error> {
        match runs {
            None => on!(self, catalog::NEED_LIVE, [], fetch_all, "read needs")?,
            Some(runs) => on!(self, catalog::NEED_LIVE_OF_RUNS, [Words(runs)], fetch_all, "read needs")?,
        }
        .records("read needs")
    }

    /// Every order that stands, or those of some jobs.
    pub async fn live_tasks(&mut self, jobs: Option<Vec<String>>) -> Result<Vec<LiveTask>, Error> {
        match jobs {
            None => on!(self, catalog::TASK_ACTIVE, [], fetch_all, "read tasks")?,
            Some(jobs) => on!(self, catalog::TASK_ACTIVE_OF_JOBS, [Words(jobs)], fetch_all, "read tasks")?,
        }
        .records("read tasks")
    }

    /// The jobs that were named, as they are.
    pub async fn named_jobs(&mut self, jobs: Vec<String>) -> Result<Vec<NamedJob>, Error> {
        on!(self, catalog::JOB_WISHES, [Words(jobs)], fetch_all, "read wishes")?.records("read wishes")
    }

    /// Writes jobs, which get the versions up to `last`; how many were where the controller believes them to be.
    pub async fn write_jobs(&mut self, jobs: &[JobWrite], last: i64, now: Timestamp) -> Result<u64, Error> {
        if jobs.is_empty() {
            return Ok(0);
        }
        let first = last - i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        let rows: Vec<Json> =
            jobs.iter().zip(first + 1..).map(|(job, version)| self.write_row(job, version)).collect();
        let written =
            on!(self, catalog::JOB_WRITE, [Doc(Json::from(rows.clone())), At(now)], execute, "write jobs")?;
        Ok(written.count())
    }

    fn write_row(&self, job: &JobWrite, version: i64) -> Json {
        serde_json::json!({
            "job_id": job.job_id,
            "from_code": job.from,
            "code": job.code,
            "message": job.message,
            "errors": job.errors,
            "failures": job.failures,
            "not_before": self.stamp(job.not_before),
            "task_number": job.task_number,
            "task_id": job.task_id,
            "agent_id": job.agent_id,
            "exit_code": job.exit_code,
            "stopping": job.stopping,
            "started_at": self.stamp(job.started_at),
            "ended_at": self.stamp(job.ended_at),
            "version": version,
        })
    }

    /// Gives orders.
    pub async fn add_tasks(&mut self, tasks: &[NewTask], now: Timestamp) -> Result<(), Error> {
        if tasks.is_empty() {
            return Ok(());
        }
        let created_at = self.stamp(Some(now));
        let rows: Vec<Json> = tasks
            .iter()
            .map(|task| {
                serde_json::json!({
                    "task_id": task.task_id,
                    "job_id": task.job_id,
                    "run_id": task.run_id,
                    "kind": task.kind,
                    "number": task.number,
                    "agent_id": task.agent_id,
                    "cancels": task.cancels,
                    "created_at": created_at,
                })
            })
            .collect();
        on!(self, catalog::TASK_ADD, [Doc(Json::from(rows.clone()))], execute, "write tasks")?;
        Ok(())
    }

    /// Ends orders; how many were as the controller believes them to be.
    pub async fn end_tasks(&mut self, tasks: &[EndTask], now: Timestamp) -> Result<u64, Error> {
        if tasks.is_empty() {
            return Ok(0);
        }
        let row = |task: &EndTask| {
            let (end, believes) = (task.end, task.believes());
            serde_json::json!({"task_id": task.task_id, "end_cause": end, "believes": believes})
        };
        let rows: Vec<Json> = tasks.iter().map(row).collect();
        let ended =
            on!(self, catalog::TASK_END, [Doc(Json::from(rows.clone())), At(now)], execute, "end tasks")?;
        Ok(ended.count())
    }

    /// Forgets changes that were looked at, unless something came on top.
    pub async fn seen_changes(&mut self, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let row = |change: &Change| serde_json::json!({"subject": change.subject, "version": change.version});
        let rows: Vec<Json> = changes.iter().map(row).collect();
        on!(self, catalog::CHANGE_SEEN, [Doc(Json::from(rows.clone()))], execute, "forget changes")?;
        Ok(())
    }
}

/// What a controller sees when it looks.
#[derive(Debug, Clone)]
pub struct Look {
    /// When that was.
    pub now: Timestamp,
    /// Whether everything was read, and not only what has changed.
    pub full: bool,
    /// What was named to it.
    pub changes: Vec<Change>,
    /// What people and probes switched on.
    pub flags: Vec<tidemill_core::project::Flag>,
    /// The agents.
    pub agents: Vec<crate::KnownAgent>,
    /// The pools and their sizes.
    pub pools: Vec<(String, i32)>,
    /// Live jobs: all, or those of runs that were named.
    pub jobs: Vec<LiveJob>,
    /// What those need.
    pub needs: Vec<LiveNeed>,
    /// Of what those need: what one agent alone has.
    pub held: crate::HeldFiles,
    /// Orders that stand: all, or those of jobs that were named.
    pub tasks: Vec<LiveTask>,
    /// The jobs that were named.
    pub named: Vec<NamedJob>,
    /// Where the runs of the live jobs are.
    pub runs: Vec<(RunId, tidemill_core::run::RunState)>,
    /// Where everything was read: runs that go on although every job of them has ended.
    pub open: Vec<RunId>,
}

impl Store {
    /// Looks at everything, or at what was named and at `runs`, from one snapshot. Agents count that were heard
    /// within `memory`, or that still have tasks.
    pub async fn look(
        &self,
        full: bool,
        runs: Vec<String>,
        limit: usize,
        memory: chrono::TimeDelta,
        now: Option<Timestamp>,
    ) -> Result<Look, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let changes = tx.changes(limit).await?;
                let mut look = Look {
                    now,
                    full,
                    flags: tx.flags().await?,
                    agents: tx.live_agents(now - memory).await?,
                    pools: tx.pool_sizes().await?,
                    changes,
                    jobs: Vec::new(),
                    needs: Vec::new(),
                    held: Vec::new(),
                    tasks: Vec::new(),
                    named: Vec::new(),
                    runs: Vec::new(),
                    open: Vec::new(),
                };
                if full {
                    look.jobs = tx.live_jobs(None).await?;
                    look.jobs.extend(tx.astray_jobs().await?);
                    look.needs = tx.live_needs(None).await?;
                    look.held = tx.live_held(None).await?;
                    look.tasks = tx.live_tasks(None).await?;
                    look.open = tx.open_runs(limit).await?;
                } else {
                    tx.look_at_changes(&mut look, runs).await?;
                }
                let runs: HashSet<&RunId> = look.jobs.iter().map(|job| &job.run_id).collect();
                if !runs.is_empty() {
                    look.runs = tx.run_states(runs.into_iter().map(RunId::to_string).collect()).await?;
                }
                Ok(look)
            })
        })
        .await
    }
}

impl Tx<'_> {
    /// Reads what was named, and runs besides.
    async fn look_at_changes(&mut self, look: &mut Look, runs: Vec<String>) -> Result<(), Error> {
        let mut runs = runs;
        let mut jobs = Vec::new();
        for change in &look.changes {
            let place = if change.subject.parse::<RunId>().is_ok() { &mut runs } else { &mut jobs };
            place.push(change.subject.clone());
        }
        if !runs.is_empty() {
            look.jobs = self.live_jobs(Some(runs.clone())).await?;
            look.needs = self.live_needs(Some(runs.clone())).await?;
            look.held = self.live_held(Some(runs)).await?;
        }
        if !jobs.is_empty() {
            look.named = self.named_jobs(jobs.clone()).await?;
        }
        let with_tasks =
            look.jobs.iter().filter(|job| job.task_id.is_some() && job.ended_at.is_none() || job.stopping);
        jobs.extend(with_tasks.map(|job| job.job_id.clone()));
        if !jobs.is_empty() {
            look.tasks = self.live_tasks(Some(jobs)).await?;
        }
        Ok(())
    }
}
