//! Markers of graphs, jobs and agents: texts that differ whenever the object has changed.
//!
//! A process compares them to find changes for all of its waiting requests with one query per kind.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use uuid::Uuid;

/// Objects whose markers are read.
#[derive(Debug, Clone, Default)]
pub struct MarkedObjects {
    pub graphs: Vec<RunId>,
    pub jobs: Vec<String>,
    pub agents: Vec<Uuid>,
}

/// Id of an object and its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Id of the graph, job or agent, as text.
    pub subject: String,
    pub marker: String,
}

/// Markers of the objects that exist.
#[derive(Debug, Clone, Default)]
pub struct Markers {
    pub graphs: Vec<Marker>,
    pub jobs: Vec<Marker>,
    pub agents: Vec<Marker>,
}

impl FromColumns for Marker {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { subject: row.text("subject")?, marker: row.text("marker")? })
    }
}

impl Store {
    /// Reads the markers of these objects, with at most one query per kind.
    pub async fn markers(&self, objects: MarkedObjects) -> Result<Markers, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let MarkedObjects { graphs, jobs, agents } = objects;
                let mut found = Markers::default();
                if !graphs.is_empty() {
                    let graphs = SqlTextList(graphs.iter().map(RunId::to_string).collect());
                    found.graphs =
                        on!(tx, catalog::MARKER_GRAPHS, [graphs.clone()], fetch_all, "watch graphs")?
                            .records("watch graphs")?;
                }
                if !jobs.is_empty() {
                    let jobs = SqlTextList(jobs);
                    found.jobs = on!(tx, catalog::MARKER_JOBS, [jobs.clone()], fetch_all, "watch jobs")?
                        .records("watch jobs")?;
                }
                if !agents.is_empty() {
                    let agents = SqlTextList(agents.iter().map(Uuid::to_string).collect());
                    found.agents =
                        on!(tx, catalog::MARKER_AGENTS, [agents.clone()], fetch_all, "watch agents")?
                            .records("watch agents")?;
                }
                Ok(found)
            })
        })
        .await
    }
}
