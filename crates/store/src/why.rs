//! The facts that `why` is decided from, read from one snapshot.

use crate::codec::{At, Columns, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, catalog};
use tidemill_core::limits::DEAD_AFTER_SECS;
use tidemill_core::project::{FlagName, project_scope};
use tidemill_core::run::RunState;
use tidemill_core::why::Facts;
use tidemill_core::{RunId, Timestamp};

struct KeyHead(Option<RunId>, Option<String>);

impl FromColumns for KeyHead {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.parsed_or_null("run_id")?, row.text_or_null("claimed_by")?))
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

struct Beat(Timestamp);

impl FromColumns for Beat {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.time("beat_at")?))
    }
}

impl Store {
    /// The facts about a run, and the time at which they held.
    pub async fn why_facts(
        &self,
        run: RunId,
        now: Option<Timestamp>,
    ) -> Result<Option<(Facts, Timestamp)>, Error> {
        let action = "read why";
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let Some(found) = tx.run(&run).await? else { return Ok(None) };
                let scopes = [project_scope(&found.project_id), format!("lane:{}", found.lane)];
                let mut flags = tx.flags().await?;
                flags.retain(|flag| flag.flag == FlagName::Paused && scopes.contains(&flag.scope));
                let head = match &found.concurrency_key {
                    Some(key) => {
                        let binds = (found.project_id.as_str(), key.as_str());
                        on!(tx, catalog::WHY_KEY, [binds.0, binds.1], fetch_optional, "read why")?
                            .record(action)?
                    }
                    None => None,
                };
                let KeyHead(key_head, key_worker) = head.unwrap_or(KeyHead(None, None));
                let ahead = if found.status == RunState::Queued {
                    on!(tx, catalog::WHY_AHEAD, [run.as_str()], fetch_optional, "read why")?.record(action)?
                } else {
                    None
                };
                let since = At(now - chrono::Duration::seconds(i64::try_from(DEAD_AFTER_SECS).unwrap_or(20)));
                let labels = Words(found.labels.clone());
                let workers: Option<Workers> =
                    on!(tx, catalog::WHY_WORKERS, [labels.clone(), since], fetch_optional, "read why")?
                        .record(action)?;
                let workers = workers.unwrap_or(Workers { alive: 0, fitting: 0, draining: 0 });
                let beat: Option<Beat> =
                    on!(tx, catalog::WHY_BEAT, [run.as_str()], fetch_optional, "read why")?.record(action)?;
                let last_event =
                    on!(tx, catalog::WHY_LAST_EVENT, [run.as_str()], fetch_optional, "read why")?
                        .record(action)?;
                let facts = Facts {
                    successor: tx.successor(&run).await?,
                    run: found,
                    flags,
                    key_head,
                    key_worker,
                    ahead: ahead.unwrap_or(0),
                    workers_fitting: workers.fitting,
                    workers_alive: workers.alive,
                    workers_draining: workers.draining,
                    worker_beat_at: beat.map(|beat| beat.0),
                    last_event,
                };
                Ok(Some((facts, now)))
            })
        })
        .await
    }
}
