//! A live job in the controller's memory, with its dependencies and orders.

use tidemill_core::graph::assignment::{Requirements, Workspace};
use tidemill_core::graph::definition::DATABASE_POOL;
use tidemill_core::graph::placement::{LocalOutputs, Placement, decide_placement};
use tidemill_core::graph::plan::Needs;
use tidemill_core::job::JobState;
use tidemill_store::{LiveJob, LiveTask};
use uuid::Uuid;

/// A live job in the memory of a controller: the stored row, linked to its dependencies and active tasks.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) live: LiveJob,
    /// Number of needed jobs that have not ended.
    pub(super) open: usize,
    /// Name of a needed job that failed.
    pub(super) failed_need: Option<String>,
    /// Needed outputs that are only on one agent's disk.
    pub(super) local_outputs: Vec<LocalOutputs>,
    pub(super) dependents: Vec<usize>,
    /// Jobs that it needs and that were live when it was read.
    pub(super) needed: Vec<usize>,
    /// The order to execute it.
    pub(super) task: Option<LiveTask>,
    /// The order to stop its last task.
    pub(super) stop: Option<LiveTask>,
}

impl Job {
    pub(super) fn state(&self) -> JobState {
        self.live.code.state()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state(), JobState::Succeeded | JobState::Failed)
    }

    /// Whether it occupies a slot: it runs, or something of it may still run.
    pub(super) fn occupies_slot(&self) -> bool {
        self.state() == JobState::Running || self.live.stopping
    }

    pub(super) fn needs(&self) -> Needs {
        match (&self.failed_need, self.open) {
            (Some(_), _) => Needs::Failed,
            (None, 0) if matches!(self.placement(), Placement::Nowhere(_)) => Needs::OutOfReach,
            (None, 0) => Needs::Met,
            (None, _) => Needs::Open,
        }
    }

    /// Decides where it can be executed, as far as is known.
    pub(super) fn placement(&self) -> Placement {
        decide_placement(&self.local_outputs)
    }

    pub(super) fn requirements(&self, on: Option<Uuid>) -> Requirements {
        Requirements {
            project: self.live.project_id.clone(),
            uses_database: self.uses_database(),
            weight: self.live.weight,
            pool: self.live.pool.clone(),
            labels: self.live.labels.clone(),
            on,
            failed_on: Vec::new(),
        }
    }

    pub(super) fn workspace(&self) -> Workspace {
        Workspace { project: self.live.project_id.clone(), name: self.live.workspace.clone() }
    }

    pub(super) fn uses_database(&self) -> bool {
        self.live.pool.as_deref() == Some(DATABASE_POOL)
    }
}
