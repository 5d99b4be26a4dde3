//! Reports of agents. Each report is one commit, is idempotent, and is fenced by task, agent and agent process. The
//! agent's clock is never used: all times are the database's.

use super::{Graphs, clean};
use crate::retry_policy::chain;
use std::collections::HashMap;
use tidemill_core::graph::record::{LogLine, TaskRecord};
use tidemill_core::limits::{
    AGENT_TASKS_MAX, GRAPH_WORD_BYTES_MAX, HEARTBEAT_STAGES_MAX, KEY_BYTES_MAX, LOG_CHUNK_BYTES_MAX,
    MESSAGE_BYTES_MAX, OUTPUTS_MAX, PATTERN_BYTES_MAX, TASK_LOG_BYTES_MAX,
};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::task::{Output, Stage, TaskKind, TaskResult};
use tidemill_core::{Timestamp, limits};
use tidemill_store::{AgentRecord, Error, HeldTask, RefusalCode, Tx};
use uuid::Uuid;

/// Most names of outputs or files in a result.
const NAMES_MAX: usize = 100;
/// Most unknown fields of an order that are stored.
const UNKNOWN_MAX: usize = 32;

/// Identity of a calling agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentIdentity {
    pub agent_id: Uuid,
    /// Derived from the id of the agent process, which only that process knows.
    pub boot_id: Uuid,
    /// The token of the request, if authentication is enabled.
    pub token_id: Option<Uuid>,
}

/// Report of the end of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    pub result: TaskResult,
    pub outputs: Vec<Output>,
    /// Fields of the order that the agent does not know.
    pub unknown: Vec<String>,
}

impl TaskReport {
    /// Creates a report without outputs.
    pub fn new(result: TaskResult) -> Self {
        Self { result, outputs: Vec::new(), unknown: Vec::new() }
    }
}

/// A task that an agent holds, with its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProgress {
    pub task_id: String,
    /// How far the task is, if the agent reports it.
    pub stage: Option<Stage>,
}

impl TaskProgress {
    /// Whether the reported stage is newer than the stored one.
    fn is_news(&self, known: &HeldTask) -> bool {
        known.kind == TaskKind::RunJob && self.stage > known.stage
    }
}

/// Answer to an agent's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatOutcome {
    /// Held tasks that have ended for the server.
    pub over: Vec<String>,
    pub draining: bool,
    /// The database's time.
    pub now: Timestamp,
}

/// Authenticates an agent process and returns its record.
pub(super) async fn authenticate_agent(tx: &mut Tx<'_>, who: &AgentIdentity) -> Result<AgentRecord, Error> {
    let known = tx.agent(who.agent_id).await?.filter(|known| known.token_id == who.token_id);
    let Some(known) = known else {
        let message = format!("agent `{}` does not exist", who.agent_id);
        return Err(Error::refused(RefusalCode::UnknownAgent, message));
    };
    let name = &known.agent.name;
    // `UnknownAgent` makes the agent register again and learn which of its tasks have ended. After `Stale` its
    // process would exit, and its commands would run on beside those that replaced them.
    if known.forgotten_at.is_some() {
        let message = format!("agent {name} was forgotten and must register again");
        return Err(Error::refused(RefusalCode::UnknownAgent, message));
    }
    if known.binding.boot_id != who.boot_id {
        let message = format!("another process of agent {name} has registered");
        return Err(Error::refused(RefusalCode::Stale, message));
    }
    Ok(known)
}

/// Locks and returns a task of this agent. A task of another agent is reported as unknown.
async fn own_task(tx: &mut Tx<'_>, who: &AgentIdentity, task: &str) -> Result<TaskRecord, Error> {
    let found = tx.lock_task(task).await?.filter(|found| found.agent_id == who.agent_id);
    found.ok_or_else(|| Error::refused(RefusalCode::UnknownTask, format!("task `{task}` does not exist")))
}

impl Graphs {
    /// Records a heartbeat and the progress of the held tasks. Returns which of them have ended.
    pub async fn heartbeat(
        &self,
        who: &AgentIdentity,
        holding: &[TaskProgress],
    ) -> Result<HeartbeatOutcome, Error> {
        if holding.len() > AGENT_TASKS_MAX {
            let message = format!("an agent may hold at most {AGENT_TASKS_MAX} tasks");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let (speaker, now) = (*who, self.now());
        let (known, moment, held) = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let known = authenticate_agent(&mut tx, &speaker).await?;
                    let moment = tx.database_now(now).await?;
                    tx.record_agent_heartbeat(speaker.agent_id, Some(moment)).await?;
                    Ok((known, moment, tx.tasks_held(speaker.agent_id).await?))
                })
            })
            .await?;
        let held: HashMap<&str, &HeldTask> = held.iter().map(|task| (task.task_id.as_str(), task)).collect();
        let (mut over, mut recorded) = (Vec::new(), 0);
        for task in holding {
            match (held.get(task.task_id.as_str()), task.stage) {
                (None, _) => over.push(task.task_id.clone()),
                (Some(known), Some(stage)) if recorded < HEARTBEAT_STAGES_MAX && task.is_news(known) => {
                    recorded += 1;
                    self.record_stage(who, &task.task_id, stage).await;
                }
                (Some(_), _) => {}
            }
        }
        Ok(HeartbeatOutcome { over, draining: known.agent.draining, now: moment })
    }

    /// Records a stage that came with a heartbeat. A failure does not fail the heartbeat: the next one repeats the
    /// stage.
    async fn record_stage(&self, who: &AgentIdentity, task: &str, stage: Stage) {
        if let Err(error) = self.report_stage(who, task, stage.as_str()).await {
            tracing::debug!(task.id = %task, "could not record the stage of task {task}: {}", chain(&error));
        }
    }

    /// Records the stage of a task. The agent may start the command unless the answer is `Stale`: then the task may
    /// belong to another agent.
    pub async fn report_stage(
        &self,
        who: &AgentIdentity,
        task: &str,
        stage: &str,
    ) -> Result<ChangeOutcome, Error> {
        let stage: Option<Stage> = stage.parse().ok();
        let (who, task, now) = (*who, task.to_owned(), self.now());
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    if !found.active {
                        return Ok(ChangeOutcome::Stale);
                    }
                    // Unknown stages and earlier stages change nothing.
                    let news = stage.filter(|stage| found.stage.is_none_or(|known| *stage > known));
                    let Some(stage) = news.filter(|_| found.result.is_none()) else {
                        return Ok(ChangeOutcome::Duplicate);
                    };
                    if found.kind == TaskKind::CancelJob {
                        return Ok(ChangeOutcome::Duplicate);
                    }
                    tx.write_stage(&task, stage, now).await?;
                    tx.mark_changed(&found.job_id).await?;
                    Ok(ChangeOutcome::Applied)
                })
            })
            .await?;
        self.wake_if_applied(applied);
        Ok(applied)
    }

    /// Records the result of a task.
    pub async fn report_result(
        &self,
        who: &AgentIdentity,
        task: &str,
        report: TaskReport,
    ) -> Result<ChangeOutcome, Error> {
        let report = checked(report)?;
        let (who, task, now) = (*who, task.to_owned(), self.now());
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    result(&mut tx, &who, &found, report, now).await
                })
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(applied)
    }

    /// Stores a log chunk of a task. If a sequence number is repeated, the first chunk stays.
    pub async fn report_log(
        &self,
        who: &AgentIdentity,
        task: &str,
        seq: i32,
        lines: Vec<LogLine>,
    ) -> Result<ChangeOutcome, Error> {
        let bytes: usize = lines.iter().map(|line| line.text.len() + 1).sum();
        if bytes > LOG_CHUNK_BYTES_MAX {
            let message =
                format!("a log chunk may have at most {LOG_CHUNK_BYTES_MAX} bytes, but has {bytes}");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        if seq < 0 || lines.is_empty() {
            let message = "a log chunk needs a sequence number of at least 0 and at least one line";
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        let (who, task, now) = (*who, task.to_owned(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    log(&mut tx, &found, seq, lines, bytes, now).await
                })
            })
            .await
    }

    /// Wakes the controller if something changed.
    fn wake_if_applied(&self, applied: ChangeOutcome) {
        if applied == ChangeOutcome::Applied {
            self.notifiers().wake_controller();
        }
    }
}

/// Writes a result. A result of an ended task does not count, but it may confirm that nothing of the task runs any
/// more.
async fn result(
    tx: &mut Tx<'_>,
    who: &AgentIdentity,
    found: &TaskRecord,
    report: TaskReport,
    now: Option<Timestamp>,
) -> Result<ChangeOutcome, Error> {
    let task = &found.task_id;
    if let Some(known) = &found.result {
        return Ok(if *known == report.result { ChangeOutcome::Duplicate } else { ChangeOutcome::Stale });
    }
    if found.active {
        if found.kind == TaskKind::RunJob {
            tx.write_outputs(&found.job_id, task, who.agent_id, &report.outputs).await?;
        }
        tx.write_result(task, &report.result, report.unknown, now).await?;
        tx.mark_changed(&found.job_id).await?;
        return Ok(ChangeOutcome::Applied);
    }
    // The result does not count. If an order to stop the task is open, it confirms that nothing is left to stop.
    let stops = |order: &TaskRecord| order.active && order.cancels.as_ref() == Some(task);
    if tx.tasks_of_job(&found.job_id).await?.iter().any(stops) {
        tx.write_result(task, &report.result, report.unknown, now).await?;
        tx.mark_changed(&found.job_id).await?;
    }
    Ok(ChangeOutcome::Stale)
}

async fn log(
    tx: &mut Tx<'_>,
    found: &TaskRecord,
    seq: i32,
    lines: Vec<LogLine>,
    bytes: usize,
    now: Option<Timestamp>,
) -> Result<ChangeOutcome, Error> {
    let max = i64::try_from(TASK_LOG_BYTES_MAX).unwrap_or(i64::MAX);
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    if found.log_bytes >= max {
        return Ok(ChangeOutcome::Duplicate);
    }
    let lines: Vec<LogLine> = if found.log_bytes + bytes > max {
        let text =
            format!("the rest is left out: more than {TASK_LOG_BYTES_MAX} bytes of output are not stored");
        vec![LogLine { stream: "stderr".to_owned(), text }]
    } else {
        lines
            .into_iter()
            .map(|line| LogLine { stream: clean(&line.stream, 16), text: clean(&line.text, line.text.len()) })
            .collect()
    };
    // The last chunk uses up the remaining bytes, so that nothing can follow it.
    let bytes = if found.log_bytes + bytes > max { max - found.log_bytes } else { bytes };
    let is_new = tx.add_log(&found.task_id, seq, &lines, bytes, now).await?;
    Ok(if is_new { ChangeOutcome::Applied } else { ChangeOutcome::Duplicate })
}

/// Checks a report and truncates its texts.
fn checked(mut report: TaskReport) -> Result<TaskReport, Error> {
    if report.outputs.len() > OUTPUTS_MAX {
        let message = format!(
            "a job may have at most {OUTPUTS_MAX} outputs, but this one has {}",
            report.outputs.len()
        );
        return Err(Error::refused(RefusalCode::TooLarge, message));
    }
    let bad = |output: &&Output| {
        output.size_bytes < 0
            || output.sha256.len() != 64
            || output.name.len().max(output.path.len()) > KEY_BYTES_MAX
            || output.url.as_ref().is_some_and(|url| url.len() > KEY_BYTES_MAX)
            || [&output.name, &output.path].into_iter().any(|text| text.is_empty() || text.contains('\0'))
    };
    if let Some(output) = report.outputs.iter().find(bad) {
        let path = clean(&output.path, 200);
        let message = format!("invalid output `{path}`: name, path, size and SHA-256 are required");
        return Err(Error::refused(RefusalCode::BadValue, message));
    }
    let names = |names: &mut Vec<String>, max: usize| {
        names.truncate(max);
        for name in names {
            // A name, and the longest pattern that may accompany it.
            *name = clean(name, GRAPH_WORD_BYTES_MAX + PATTERN_BYTES_MAX + 8);
        }
    };
    names(&mut report.unknown, UNKNOWN_MAX);
    match &mut report.result {
        TaskResult::Ended { unmatched, hint, message, .. } => {
            names(unmatched, NAMES_MAX);
            names(hint, NAMES_MAX);
            *message = message.take().map(|text| clean(&text, MESSAGE_BYTES_MAX));
        }
        TaskResult::Failed { message, .. } => *message = clean(message, MESSAGE_BYTES_MAX),
        TaskResult::Stopped => {}
    }
    Ok(report)
}

/// Returns the time without a heartbeat after which an agent counts as away.
pub(super) fn silence() -> chrono::TimeDelta {
    chrono::TimeDelta::seconds(i64::try_from(limits::AGENT_SILENT_SECS).unwrap_or(i64::MAX))
}
