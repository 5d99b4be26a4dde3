//! The edges of a graph: which jobs need which.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use tidemill_core::graph::record::JobNeeds;

/// Positions of a job and of a job that it needs.
struct Edge(i32, i32);

impl FromColumns for Edge {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.int("position")?, row.int("needed")?))
    }
}

impl Store {
    /// Returns the dependencies of the jobs with positions in `after + 1..=last`. Jobs without dependencies are left
    /// out.
    pub async fn needs(&self, run: RunId, after: i32, last: i32) -> Result<Vec<JobNeeds>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let run = run.as_str();
                let edges: Vec<Edge> =
                    on!(tx, catalog::NEED_LIST, [run, after, last], fetch_all, "read needs")?
                        .records("read needs")?;
                let mut jobs: Vec<JobNeeds> = Vec::new();
                for Edge(position, needed) in edges {
                    match jobs.last_mut().filter(|job| job.position == position) {
                        Some(job) => job.needs.push(needed),
                        None => jobs.push(JobNeeds { position, needs: vec![needed] }),
                    }
                }
                Ok(jobs)
            })
        })
        .await
    }
}
