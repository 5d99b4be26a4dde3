//! The shape of a graph: which jobs need which.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::RunId;
use tidemill_core::graph::record::JobNeeds;

/// A job, and one that it needs, by their places.
struct Edge(i32, i32);

impl FromColumns for Edge {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.int("position")?, row.int("needed")?))
    }
}

impl Store {
    /// What the jobs of a run need whose places are after the first and not after the last. Those that need nothing are
    /// left out.
    pub async fn needs(&self, run: RunId, after: i32, last: i32) -> Result<Vec<JobNeeds>, Error> {
        self.glance(move |mut tx| {
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
