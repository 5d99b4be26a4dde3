//! Incoming webhooks: their senders, projects and rules.

use crate::codec::{Columns, SqlJson, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use tidemill_core::hook::Hook;
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, Timestamp};

impl FromColumns for Hook {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let rules = serde_json::from_value(row.json("rules")?);
        Ok(Self {
            hook: row.text("hook")?,
            project_id: row.text("project_id")?,
            kind: row.parsed("kind")?,
            secret_env: row.text("secret_env")?,
            rules: rules.map_err(|source| sqlx::Error::Decode(Box::new(source)))?,
            defined_by: row.parsed("defined_by")?,
            paused_at: row.time_or_null("paused_at")?,
            created_at: row.time("created_at")?,
        })
    }
}

impl Tx<'_> {
    /// Locks a hook until the transaction ends, and reads it.
    pub async fn lock_hook(&mut self, name: &str) -> Result<Option<Hook>, Error> {
        let _: Option<String> =
            on!(self, catalog::HOOK_LOCK, [name], fetch_optional, "lock a hook")?.record("lock a hook")?;
        let binds = (Some(name), None::<&str>);
        on!(self, catalog::HOOK_LIST, [binds.0, binds.1], fetch_optional, "read a hook")?
            .record("read a hook")
    }

    /// Creates a hook, or changes the hook of that name. Returns false if the name belongs to a hook of another
    /// project.
    pub async fn put_hook(&mut self, hook: &Hook, now: Option<Timestamp>) -> Result<bool, Error> {
        let rules = serde_json::to_value(&hook.rules)
            .map_err(|source| Error::database("store a hook", sqlx::Error::Encode(Box::new(source))))?;
        let at = self.time(now);
        let written = on!(
            self,
            catalog::HOOK_PUT,
            [
                hook.hook.as_str(),
                hook.project_id.as_str(),
                hook.kind.as_str(),
                hook.secret_env.as_str(),
                SqlJson(rules.clone()),
                hook.defined_by.as_str(),
                hook.paused_at.map(SqlTime),
                at,
            ],
            execute,
            "store a hook"
        )?;
        if written.count() > 0 {
            return Ok(true);
        }
        // Either the hook has these values already, or the caller reports a conflict.
        self.skip_audit();
        Ok(self.lock_hook(&hook.hook).await?.is_some_and(|stored| stored.project_id == hook.project_id))
    }
}

/// The run of a signed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRun {
    pub run_id: RunId,
    /// Whether this delivery queued it.
    pub created: bool,
}

impl Store {
    /// Queues the run of a signed body. A body that queued a run before returns that run, with any request.
    pub async fn queue_hook_run(
        &self,
        hook: String,
        body_hash: String,
        request: QueueRun,
        run_id: RunId,
        now: Option<Timestamp>,
    ) -> Result<HookRun, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let at = tx.time(now);
                let binds = (hook.as_str(), body_hash.as_str());
                let recorded = on!(
                    tx,
                    catalog::HOOK_DELIVERY_RECORD,
                    [binds.0, binds.1, run_id.as_str(), at],
                    execute,
                    "record a delivery of a hook"
                )?;
                if recorded.count() == 0 {
                    let found: Option<String> = on!(
                        tx,
                        catalog::HOOK_DELIVERY_RUN,
                        [binds.0, binds.1],
                        fetch_optional,
                        "read a delivery of a hook"
                    )?
                    .record("read a delivery of a hook")?;
                    let found = found.as_deref().and_then(|id| id.parse::<RunId>().ok());
                    let run = found.ok_or_else(|| Error::unanswered("read a delivery of a hook"))?;
                    tx.skip_audit();
                    // After a lost answer, the retry finds its own run.
                    return Ok(HookRun { created: run == run_id, run_id: run });
                }
                let queued = tx.queue_run(&request, &run_id, now).await?;
                if queued.run_id != run_id {
                    let message = "the id of this delivery was used for another body";
                    return Err(Error::refused(RefusalCode::KeyConflict, message));
                }
                Ok(HookRun { run_id, created: true })
            })
        })
        .await
    }

    /// Forgets bodies that were received before a time; returns how many.
    pub async fn prune_hook_deliveries(&self, before: Timestamp) -> Result<u64, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = on!(
                    tx,
                    catalog::PRUNE_HOOK_DELIVERIES,
                    [SqlTime(before)],
                    execute,
                    "prune deliveries of hooks"
                )?;
                Ok(removed.count())
            })
        })
        .await
    }

    /// Lists hooks by name: all, one, or those of a project.
    pub async fn hooks(&self, name: Option<String>, project: Option<String>) -> Result<Vec<Hook>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found = (name.as_deref(), project.as_deref());
                Ok(on!(tx, catalog::HOOK_LIST, [found.0, found.1], fetch_all, "list hooks")?
                    .readable("hooks", "hook"))
            })
        })
        .await
    }

    /// Deletes a hook, in this project if one is named. The runs that it queued stay.
    pub async fn remove_hook(&self, name: String, project: Option<String>) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let binds = (name.as_str(), project.as_deref());
                let removed = on!(tx, catalog::HOOK_REMOVE, [binds.0, binds.1], execute, "remove a hook")?;
                if removed.count() == 0 { Err(unknown(&name)) } else { Ok(()) }
            })
        })
        .await
    }
}

fn unknown(name: &str) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::UnknownHook,
        message: format!("hook `{name}` does not exist"),
        hint: Some("tidemill hook list".to_owned()),
    })
}
