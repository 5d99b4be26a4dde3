//! Tasks of agents: their orders and their reports.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlUuid, from_json};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::graph::JobSpec;
use tidemill_core::graph::record::{JobOutput, LogLine, LogPiece, Order, OrderWork, TaskRecord};
use tidemill_core::limits::{BATCH_MAX, ORDERS_MAX};
use tidemill_core::task::{Output, Stage, TaskKind, TaskResult};
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

/// Parses the result that an agent reported. An unreadable result counts as a failure, because the task has ended.
pub(crate) fn task_result(json: Json) -> TaskResult {
    serde_json::from_value(json).unwrap_or_else(|error| TaskResult::Failed {
        fatal: true,
        elsewhere: false,
        message: format!("the result of this task cannot be read: {error}"),
    })
}

impl FromColumns for TaskRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let result = row.json_or_null("result")?;
        Ok(Self {
            task_id: row.text("task_id")?,
            job_id: row.text("job_id")?,
            kind: row.parsed("kind")?,
            number: row.int("number")?,
            agent_id: row.uuid("agent_id")?,
            cancels: row.text_or_null("cancels")?,
            active: row.truth("active")?,
            stage: row.parsed_or_null("stage")?,
            stage_at: row.time_or_null("stage_at")?,
            result: result.map(task_result),
            end: row.parsed_or_null("end_cause")?,
            unknown: row.words("unknown")?,
            log_bytes: row.long("log_bytes")?,
            created_at: row.time("created_at")?,
            ended_at: row.time_or_null("ended_at")?,
        })
    }
}

/// An order before its inputs are read.
struct OrderRow {
    task_id: String,
    kind: TaskKind,
    job_id: String,
    cancels: Option<String>,
    number: i32,
    run_id: RunId,
    project_id: String,
    workspace: String,
    spec: JobSpec,
}

impl FromColumns for OrderRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            task_id: row.text("task_id")?,
            kind: row.parsed("kind")?,
            job_id: row.text("job_id")?,
            cancels: row.text_or_null("cancels")?,
            number: row.int("number")?,
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            workspace: row.text("workspace")?,
            spec: from_json("spec", row.json("spec")?)?,
        })
    }
}

/// A task that its agent has not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldTask {
    pub task_id: String,
    pub kind: TaskKind,
    /// Last stage that the agent reported.
    pub stage: Option<Stage>,
}

impl FromColumns for HeldTask {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            task_id: row.text("task_id")?,
            kind: row.parsed("kind")?,
            stage: row.parsed_or_null("stage")?,
        })
    }
}

impl FromColumns for LogPiece {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { seq: row.int("seq")?, lines: from_json("lines", row.json("lines")?)? })
    }
}

/// Number of open tasks over all agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOrders {
    /// Tasks that execute a job.
    pub running: i64,
    /// Tasks that cancel a job.
    pub stopping: i64,
}

impl FromColumns for OpenOrders {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { running: row.long("running")?, stopping: row.long("stopping")? })
    }
}

impl Tx<'_> {
    /// Locks a task until the transaction ends, and reads it.
    pub async fn lock_task(&mut self, task: &str) -> Result<Option<TaskRecord>, Error> {
        on!(self, catalog::TASK_LOCK, [task], fetch_optional, "lock a task")?.record("lock a task")
    }

    pub async fn task(&mut self, task: &str) -> Result<Option<TaskRecord>, Error> {
        on!(self, catalog::TASK_GET, [task], fetch_optional, "read a task")?.record("read a task")
    }

    /// Returns the tasks of a job, oldest first.
    pub async fn tasks_of_job(&mut self, job: &str) -> Result<Vec<TaskRecord>, Error> {
        on!(self, catalog::TASK_LIST, [job], fetch_all, "list tasks")?.records("list tasks")
    }

    /// Records the stage of a task.
    pub async fn write_stage(
        &mut self,
        task: &str,
        stage: Stage,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::TASK_STAGE, [task, stage.as_str(), now], execute, "note a stage")?;
        Ok(())
    }

    /// Records the result of a task.
    pub async fn write_result(
        &mut self,
        task: &str,
        result: &TaskResult,
        unknown: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        let json = serde_json::to_value(result).unwrap_or(Json::Null);
        let (doc, unknown) = (SqlJson(json), SqlTextList(unknown));
        on!(self, catalog::TASK_RESULT, [task, doc.clone(), now, unknown.clone()], execute, "note a result")?;
        Ok(())
    }

    /// Records the outputs of a task.
    pub async fn write_outputs(
        &mut self,
        job: &str,
        task: &str,
        agent: Uuid,
        outputs: &[Output],
    ) -> Result<(), Error> {
        let row = |output: &Output| {
            serde_json::json!({
                "job_id": job,
                "task_id": task,
                "name": output.name,
                "path": output.path,
                "size_bytes": output.size_bytes,
                "sha256": output.sha256,
                "url": output.url,
                "made_by": job,
                "agent_id": agent,
            })
        };
        for part in outputs.chunks(BATCH_MAX) {
            let rows: Vec<Json> = part.iter().map(row).collect();
            on!(self, catalog::OUTPUT_ADD, [SqlJson(Json::from(rows.clone()))], execute, "note outputs")?;
        }
        Ok(())
    }

    /// Stores a piece of the log. Returns false if that piece is stored already.
    pub async fn add_log(
        &mut self,
        task: &str,
        seq: i32,
        lines: &[LogLine],
        bytes: i64,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let doc = SqlJson(serde_json::to_value(lines).unwrap_or(Json::Null));
        let written =
            on!(self, catalog::LOG_ADD, [task, seq, doc.clone(), bytes, now], execute, "store a log piece")?;
        if written.count() == 0 {
            return Ok(false);
        }
        on!(self, catalog::TASK_LOGGED, [task, bytes], execute, "store a log piece")?;
        Ok(true)
    }

    /// Returns the last lines of a task's log.
    pub async fn log_tail(&mut self, task: &str, lines: usize) -> Result<Vec<LogLine>, Error> {
        // Each piece has at least one line.
        let limit = i64::try_from(lines).unwrap_or(i64::MAX);
        let pieces: Vec<LogPiece> =
            on!(self, catalog::LOG_TAIL, [task, limit], fetch_all, "read output")?.records("read output")?;
        let mut tail: Vec<LogLine> = pieces.into_iter().rev().flat_map(|piece| piece.lines).collect();
        let over = tail.len().saturating_sub(lines);
        tail.drain(..over);
        Ok(tail)
    }

    /// Returns the unfinished tasks of an agent.
    pub async fn tasks_held(&mut self, agent: Uuid) -> Result<Vec<HeldTask>, Error> {
        on!(self, catalog::TASK_HELD, [SqlUuid(agent)], fetch_all, "read tasks")?.records("read tasks")
    }

    /// Returns the open orders that an agent does not have yet, cancel orders first.
    pub async fn orders(&mut self, agent: Uuid, have: Vec<String>) -> Result<Vec<Order>, Error> {
        let limit = i64::try_from(ORDERS_MAX).unwrap_or(i64::MAX);
        let binds = (SqlUuid(agent), SqlTextList(have));
        let rows: Vec<OrderRow> =
            on!(self, catalog::TASK_ORDERS, [binds.0, binds.1, limit], fetch_all, "read orders")?
                .readable("tasks", "task_id");
        let mut orders = Vec::with_capacity(rows.len());
        for row in rows {
            let OrderRow { task_id, kind, job_id, cancels, number, run_id, project_id, workspace, spec } =
                row;
            let work = match kind {
                TaskKind::CancelJob => None,
                TaskKind::RunJob => {
                    let inputs = self.inputs(&job_id).await?;
                    Some(OrderWork { run_id, project_id, workspace, attempt: number, spec, inputs })
                }
            };
            orders.push(Order { task_id, kind, job_id, cancels, work });
        }
        Ok(orders)
    }

    async fn inputs(&mut self, job: &str) -> Result<Vec<JobOutput>, Error> {
        on!(self, catalog::TASK_INPUTS, [job], fetch_all, "read inputs")?.records("read inputs")
    }
}

impl Store {
    /// Returns pieces of a task's log after a sequence number.
    pub async fn task_logs(
        &self,
        task: String,
        after: Option<i32>,
        limit: usize,
    ) -> Result<Vec<LogPiece>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit.clamp(1, BATCH_MAX)).unwrap_or(i64::MAX);
                let after = after.unwrap_or(-1);
                on!(tx, catalog::LOG_LIST, [task.as_str(), after, limit], fetch_all, "read output")?
                    .records("read output")
            })
        })
        .await
    }

    /// Returns the last pieces of a task's log, in order.
    pub async fn task_logs_last(&self, task: String, limit: usize) -> Result<Vec<LogPiece>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit.clamp(1, BATCH_MAX)).unwrap_or(i64::MAX);
                let mut pieces: Vec<LogPiece> =
                    on!(tx, catalog::LOG_TAIL, [task.as_str(), limit], fetch_all, "read output")?
                        .records("read output")?;
                pieces.reverse();
                Ok(pieces)
            })
        })
        .await
    }

    pub async fn task(&self, task: String) -> Result<Option<TaskRecord>, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.task(&task).await })).await
    }
}

impl Tx<'_> {
    /// Counts the open tasks over all agents.
    pub async fn open_orders(&mut self) -> Result<OpenOrders, Error> {
        let found =
            on!(self, catalog::TASK_STANDING, [], fetch_optional, "count tasks")?.record("count tasks")?;
        Ok(found.unwrap_or(OpenOrders { running: 0, stopping: 0 }))
    }
}
