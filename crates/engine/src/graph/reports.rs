//! What agents report. Each report is one commit, can be repeated, and is fenced by the task, the agent and its
//! process. An agent's clock never matters: what is written carries the time of the database.

use super::{Graphs, clean};
use crate::patience::chain;
use std::collections::HashMap;
use tidemill_core::graph::record::{LogLine, TaskRecord};
use tidemill_core::limits::{
    AGENT_TASKS_MAX, BEAT_STAGES_MAX, GRAPH_WORD_BYTES_MAX, KEY_BYTES_MAX, LOG_CHUNK_BYTES_MAX,
    MESSAGE_BYTES_MAX, OUTPUTS_MAX, PATTERN_BYTES_MAX, TASK_LOG_BYTES_MAX,
};
use tidemill_core::run::Applied;
use tidemill_core::task::{Output, Stage, TaskKind, TaskResult};
use tidemill_core::{Timestamp, limits};
use tidemill_store::{Error, HeldTask, KnownAgent, RefusalCode, Tx};
use uuid::Uuid;

/// Names of outputs or files in a result.
const NAMES_MAX: usize = 100;
/// Fields of an order that an agent did not know, as they are kept.
const UNKNOWN_MAX: usize = 32;

/// Who speaks for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker {
    /// The agent.
    pub agent_id: Uuid,
    /// The process.
    pub boot_id: Uuid,
    /// The token that it comes with, where tokens are asked for.
    pub token_id: Option<Uuid>,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    /// What came of it.
    pub result: TaskResult,
    /// What it left.
    pub outputs: Vec<Output>,
    /// Fields of the order that the agent does not know.
    pub unknown: Vec<String>,
}

impl TaskReport {
    /// A report without files.
    pub fn new(result: TaskResult) -> Self {
        Self { result, outputs: Vec::new(), unknown: Vec::new() }
    }
}

/// A task that an agent holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The task.
    pub task_id: String,
    /// How far the agent is with it, where it says so.
    pub stage: Option<Stage>,
}

impl Holding {
    /// Whether it says more than is known of a task.
    fn is_news(&self, known: &HeldTask) -> bool {
        known.kind == TaskKind::RunJob && self.stage > known.stage
    }
}

/// What an agent learns from a sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beaten {
    /// Of what it holds: tasks that are over for the server.
    pub over: Vec<String>,
    /// Whether it gets no new tasks.
    pub draining: bool,
    /// The server's time.
    pub now: Timestamp,
}

/// The agent for which somebody speaks, if they may.
pub(super) async fn speaks(tx: &mut Tx<'_>, who: &Speaker) -> Result<KnownAgent, Error> {
    let known = tx.agent(who.agent_id).await?.filter(|known| known.token_id == who.token_id);
    let Some(known) = known else {
        let message = format!("agent `{}` does not exist", who.agent_id);
        return Err(Error::refused(RefusalCode::UnknownAgent, message));
    };
    let name = &known.agent.name;
    // It registers anew then, and learns which of its commands are over; of a stale one the process would end, and they
    // would go on beside those that took their place.
    if known.forgotten_at.is_some() {
        let message = format!("agent {name} was forgotten, and has to register anew");
        return Err(Error::refused(RefusalCode::UnknownAgent, message));
    }
    if known.agent.boot_id != who.boot_id {
        let message = format!("another process speaks for agent {name}");
        return Err(Error::refused(RefusalCode::Stale, message));
    }
    Ok(known)
}

/// A task of that agent, locked. Anybody else's reads as one that does not exist.
async fn own_task(tx: &mut Tx<'_>, who: &Speaker, task: &str) -> Result<TaskRecord, Error> {
    let found = tx.lock_task(task).await?.filter(|found| found.agent_id == who.agent_id);
    found.ok_or_else(|| Error::refused(RefusalCode::UnknownTask, format!("task `{task}` does not exist")))
}

impl Graphs {
    /// Notes a sign of life and how far the agent is with what it holds, and tells what is over of that.
    pub async fn beat(&self, who: &Speaker, holding: &[Holding]) -> Result<Beaten, Error> {
        if holding.len() > AGENT_TASKS_MAX {
            let message = format!("an agent holds at most {AGENT_TASKS_MAX} tasks");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let (speaker, now) = (*who, self.now());
        let (known, moment, held) = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let known = speaks(&mut tx, &speaker).await?;
                    let moment = tx.database_now(now).await?;
                    tx.beat_agent(speaker.agent_id, Some(moment)).await?;
                    Ok((known, moment, tx.tasks_held(speaker.agent_id).await?))
                })
            })
            .await?;
        let held: HashMap<&str, &HeldTask> = held.iter().map(|task| (task.task_id.as_str(), task)).collect();
        let (mut over, mut noted) = (Vec::new(), 0);
        for task in holding {
            match (held.get(task.task_id.as_str()), task.stage) {
                (None, _) => over.push(task.task_id.clone()),
                (Some(known), Some(stage)) if noted < BEAT_STAGES_MAX && task.is_news(known) => {
                    noted += 1;
                    self.note_stage(who, &task.task_id, stage).await;
                }
                (Some(_), _) => {}
            }
        }
        Ok(Beaten { over, draining: known.agent.draining, now: moment })
    }

    /// Notes a stage that was told with a sign of life, which counts whatever becomes of this: the next one says it
    /// again.
    async fn note_stage(&self, who: &Speaker, task: &str, stage: Stage) {
        if let Err(error) = self.report_stage(who, task, stage.as_str()).await {
            tracing::debug!(task.id = %task, "the stage of task {task} was not noted: {}", chain(&error));
        }
    }

    /// Notes how far an agent is. Only an answer other than `Stale` lets it begin: the task may be another's by
    /// now.
    pub async fn report_stage(&self, who: &Speaker, task: &str, stage: &str) -> Result<Applied, Error> {
        let stage: Option<Stage> = stage.parse().ok();
        let (who, task, now) = (*who, task.to_owned(), self.now());
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    if !found.active {
                        return Ok(Applied::Stale);
                    }
                    // One that is not known here changes nothing, and neither does one that is behind.
                    let news = stage.filter(|stage| found.stage.is_none_or(|known| *stage > known));
                    let Some(stage) = news.filter(|_| found.result.is_none()) else {
                        return Ok(Applied::Duplicate);
                    };
                    if found.kind == TaskKind::CancelJob {
                        return Ok(Applied::Duplicate);
                    }
                    tx.write_stage(&task, stage, now).await?;
                    tx.note_change(&found.job_id).await?;
                    Ok(Applied::Applied)
                })
            })
            .await?;
        self.heard(applied);
        Ok(applied)
    }

    /// Notes what came of a task.
    pub async fn report_result(
        &self,
        who: &Speaker,
        task: &str,
        report: TaskReport,
    ) -> Result<Applied, Error> {
        let report = checked(report)?;
        let (who, task, now) = (*who, task.to_owned(), self.now());
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    result(&mut tx, &who, &found, report, now).await
                })
            })
            .await?;
        self.bells().ring_controller();
        Ok(applied)
    }

    /// Keeps a piece of what a command wrote. The first of a place stays.
    pub async fn report_log(
        &self,
        who: &Speaker,
        task: &str,
        seq: i32,
        lines: Vec<LogLine>,
    ) -> Result<Applied, Error> {
        let bytes: usize = lines.iter().map(|line| line.text.len() + 1).sum();
        if bytes > LOG_CHUNK_BYTES_MAX {
            let message =
                format!("a piece of output has at most {LOG_CHUNK_BYTES_MAX} bytes, and this has {bytes}");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        if seq < 0 || lines.is_empty() {
            let message = "a piece of output has a place from 0, and at least one line";
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        let (who, task, now) = (*who, task.to_owned(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    let found = own_task(&mut tx, &who, &task).await?;
                    log(&mut tx, &found, seq, lines, bytes, now).await
                })
            })
            .await
    }

    /// Tells the controller of something new.
    fn heard(&self, applied: Applied) {
        if applied == Applied::Applied {
            self.bells().ring_controller();
        }
    }
}

/// Writes a result that may count, or that at least confirms that nothing of the task runs any more.
async fn result(
    tx: &mut Tx<'_>,
    who: &Speaker,
    found: &TaskRecord,
    report: TaskReport,
    now: Option<Timestamp>,
) -> Result<Applied, Error> {
    let task = &found.task_id;
    if let Some(known) = &found.result {
        return Ok(if *known == report.result { Applied::Duplicate } else { Applied::Stale });
    }
    if found.active {
        if found.kind == TaskKind::RunJob {
            tx.write_outputs(&found.job_id, task, who.agent_id, &report.outputs).await?;
        }
        tx.write_result(task, &report.result, report.unknown, now).await?;
        tx.note_change(&found.job_id).await?;
        return Ok(Applied::Applied);
    }
    // It does not count; but where an order to stop it stands, it says that there is nothing left to stop.
    let stops = |order: &TaskRecord| order.active && order.cancels.as_ref() == Some(task);
    if tx.tasks_of_job(&found.job_id).await?.iter().any(stops) {
        tx.write_result(task, &report.result, report.unknown, now).await?;
        tx.note_change(&found.job_id).await?;
    }
    Ok(Applied::Stale)
}

async fn log(
    tx: &mut Tx<'_>,
    found: &TaskRecord,
    seq: i32,
    lines: Vec<LogLine>,
    bytes: usize,
    now: Option<Timestamp>,
) -> Result<Applied, Error> {
    let max = i64::try_from(TASK_LOG_BYTES_MAX).unwrap_or(i64::MAX);
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    if found.log_bytes >= max {
        return Ok(Applied::Duplicate);
    }
    let lines: Vec<LogLine> = if found.log_bytes + bytes > max {
        let text =
            format!("the rest is left out: more than {TASK_LOG_BYTES_MAX} bytes of output are not kept");
        vec![LogLine { stream: "stderr".to_owned(), text }]
    } else {
        lines
            .into_iter()
            .map(|line| LogLine { stream: clean(&line.stream, 16), text: clean(&line.text, line.text.len()) })
            .collect()
    };
    // The last piece fills what is left, so that nothing comes after it.
    let bytes = if found.log_bytes + bytes > max { max - found.log_bytes } else { bytes };
    let kept = tx.add_log(&found.task_id, seq, &lines, bytes, now).await?;
    Ok(if kept { Applied::Applied } else { Applied::Duplicate })
}

/// A report within its bounds.
fn checked(mut report: TaskReport) -> Result<TaskReport, Error> {
    if report.outputs.len() > OUTPUTS_MAX {
        let message =
            format!("a job leaves at most {OUTPUTS_MAX} files, and this left {}", report.outputs.len());
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
        let message = format!("`{path}` is no output: it has a name, a path, a size and a SHA-256");
        return Err(Error::refused(RefusalCode::BadValue, message));
    }
    let names = |names: &mut Vec<String>, max: usize| {
        names.truncate(max);
        for name in names {
            // A name, and the longest pattern that may stand beside it.
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

/// How long an agent may be silent.
pub(super) fn silence() -> chrono::TimeDelta {
    chrono::TimeDelta::seconds(i64::try_from(limits::AGENT_SILENT_SECS).unwrap_or(i64::MAX))
}
