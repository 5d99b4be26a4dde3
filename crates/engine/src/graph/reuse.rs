//! Selects results of earlier runs to reuse: their files must exist and be available on one agent.

use std::collections::BTreeMap;
use tidemill_core::graph::placement::{LocalOutputs, jobs_to_rerun};
use tidemill_store::{Error, LatestJob, Tx};

/// Locations of outputs that are only on agents' disks, by job name.
pub(super) struct OutputLocations(BTreeMap<String, Vec<LocalOutputs>>);

impl OutputLocations {
    /// Reads the locations. They cannot be released before the transaction ends.
    pub(super) async fn read<'a>(
        tx: &mut Tx<'_>,
        jobs: impl Iterator<Item = &'a LatestJob>,
    ) -> Result<Self, Error> {
        let held = tx.held_outputs(jobs.map(|job| job.job_id.clone()).collect()).await?;
        let mut files: BTreeMap<String, Vec<LocalOutputs>> = BTreeMap::new();
        for (_, held) in held {
            files.entry(held.job.clone()).or_default().push(held);
        }
        Ok(Self(files))
    }

    /// Returns the jobs among `needs` that have to run again, because one job could not get the outputs of all of them.
    pub(super) fn unreachable_needs<'a>(&self, needs: impl Iterator<Item = &'a String>) -> Vec<String> {
        let held: Vec<LocalOutputs> = needs.filter_map(|need| self.0.get(need)).flatten().cloned().collect();
        jobs_to_rerun(&held).into_iter().map(str::to_owned).collect()
    }
}
