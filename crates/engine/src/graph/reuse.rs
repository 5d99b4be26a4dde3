//! Which results of earlier runs can be reused: those whose files are still there, and can be brought together.

use std::collections::BTreeMap;
use tidemill_core::graph::place::{Held, out_of_reach};
use tidemill_store::{Error, LatestJob, Tx};

/// Where the files are that jobs left and no store has, by the names of the jobs.
pub(super) struct Reach(BTreeMap<String, Vec<Held>>);

impl Reach {
    /// Reads where they are. Until the step ends nobody removes any of them.
    pub(super) async fn read<'a>(
        tx: &mut Tx<'_>,
        jobs: impl Iterator<Item = &'a LatestJob>,
    ) -> Result<Self, Error> {
        let held = tx.held_by(jobs.map(|job| job.job_id.clone()).collect()).await?;
        let mut files: BTreeMap<String, Vec<Held>> = BTreeMap::new();
        for (_, held) in held {
            files.entry(held.job.clone()).or_default().push(held);
        }
        Ok(Self(files))
    }

    /// Of needed jobs whose results would be reused: those that have to run again, because a job that needs all of them
    /// could not get what they left.
    pub(super) fn lacking<'a>(&self, needs: impl Iterator<Item = &'a String>) -> Vec<String> {
        let held: Vec<Held> = needs.filter_map(|need| self.0.get(need)).flatten().cloned().collect();
        out_of_reach(&held).into_iter().map(str::to_owned).collect()
    }
}
