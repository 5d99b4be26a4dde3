//! Facts about runs, from which `why` derives its answer, read from one snapshot.

use crate::codec::{Columns, SqlTextList, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::limits::DEAD_AFTER_SECS;
use tidemill_core::project::{FlagName, project_scope};
use tidemill_core::run::{Gate, RunState};
use tidemill_core::why::Facts;
use tidemill_core::{RunId, Timestamp};

struct KeyHead(Option<RunId>, Option<String>);

impl FromColumns for KeyHead {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.run_id_or_null("run_id")?, row.text_or_null("claimed_by")?))
    }
}

struct Workers {
    alive: i64,
    fitting: i64,
    draining: i64,
}

impl FromColumns for Workers {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let (alive, fitting) = (row.long("alive")?, row.long("fitting")?);
        Ok(Self { alive, fitting, draining: row.long("draining")? })
    }
}

struct LastHeartbeat(Timestamp);

impl FromColumns for LastHeartbeat {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.time("beat_at")?))
    }
}

struct LastEvent(String, Timestamp);

impl FromColumns for LastEvent {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("message")?, row.time("created_at")?))
    }
}

const ACTION: &str = "read the facts about a run";

impl Store {
    /// Reads the facts about a run, and the time at which they held.
    pub async fn why_facts(
        &self,
        run: RunId,
        now: Option<Timestamp>,
    ) -> Result<Option<(Facts, Timestamp)>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let Some(mut facts) = tx.why_facts(&run, now).await? else { return Ok(None) };
                // One level suffices, because the head of a key waits for no other run of that key.
                if facts.run.gate == Some(Gate::Key)
                    && let Some(head) = &facts.key_head
                {
                    facts.key_head_facts = tx.why_facts(head, now).await?.map(Box::new);
                }
                Ok(Some((facts, now)))
            })
        })
        .await
    }

    /// Returns stalled runs, at most `limit`.
    pub async fn stalled_runs(&self, limit: usize) -> Result<Vec<RunId>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let found: Vec<String> =
                    on!(tx, catalog::RUNS_STALLED, [limit], fetch_all, "list stalled runs")?
                        .records("list stalled runs")?;
                // An id that cannot be parsed is skipped.
                Ok(found.into_iter().filter_map(|run| run.parse().ok()).collect())
            })
        })
        .await
    }
}

impl Tx<'_> {
    /// Reads the facts about one run, without those about the head of its key.
    async fn why_facts(&mut self, run: &RunId, now: Timestamp) -> Result<Option<Facts>, Error> {
        let Some(found) = self.run(run).await? else { return Ok(None) };
        let scopes = [project_scope(&found.project_id), format!("lane:{}", found.lane)];
        let mut flags = self.flags().await?;
        flags.retain(|flag| flag.flag == FlagName::Paused && scopes.contains(&flag.scope));
        let head = match &found.concurrency_key {
            Some(key) => {
                let binds = (found.project_id.as_str(), key.as_str());
                on!(self, catalog::WHY_KEY, [binds.0, binds.1], fetch_optional, "read the facts about a run")?
                    .record(ACTION)?
            }
            None => None,
        };
        let KeyHead(key_head, key_worker) = head.unwrap_or(KeyHead(None, None));
        let ahead = if found.status == RunState::Queued {
            on!(self, catalog::WHY_AHEAD, [run.as_str()], fetch_optional, "read the facts about a run")?
                .record(ACTION)?
        } else {
            None
        };
        let since = SqlTime(now - chrono::Duration::seconds(i64::try_from(DEAD_AFTER_SECS).unwrap_or(20)));
        let labels = SqlTextList(found.labels.clone());
        let workers: Option<Workers> = on!(
            self,
            catalog::WHY_WORKERS,
            [labels.clone(), since],
            fetch_optional,
            "read the facts about a run"
        )?
        .record(ACTION)?;
        let workers = workers.unwrap_or(Workers { alive: 0, fitting: 0, draining: 0 });
        let heartbeat: Option<LastHeartbeat> =
            on!(self, catalog::WHY_BEAT, [run.as_str()], fetch_optional, "read the facts about a run")?
                .record(ACTION)?;
        let last: Option<LastEvent> =
            on!(self, catalog::WHY_LAST_EVENT, [run.as_str()], fetch_optional, "read the facts about a run")?
                .record(ACTION)?;
        let (last_event, last_event_at) = last.map(|event| (event.0, event.1)).unzip();
        Ok(Some(Facts {
            successor: self.successor(run).await?,
            run: found,
            flags,
            key_head,
            key_worker,
            key_head_facts: None,
            ahead: ahead.unwrap_or(0),
            workers_fitting: workers.fitting,
            workers_alive: workers.alive,
            workers_draining: workers.draining,
            worker_beat_at: heartbeat.map(|heartbeat| heartbeat.0),
            last_event,
            last_event_at,
        }))
    }
}
