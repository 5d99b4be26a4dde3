//! Incoming webhooks: their senders, projects and rules.

use crate::codec::{Columns, SqlJson, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::hook::Hook;

impl FromColumns for Hook {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let rules = serde_json::from_value(row.json("rules")?);
        Ok(Self {
            hook: row.text("hook")?,
            project_id: row.text("project_id")?,
            kind: row.parsed("kind")?,
            secret_env: row.text("secret_env")?,
            rules: rules.map_err(|source| sqlx::Error::Decode(Box::new(source)))?,
            paused_at: row.time_or_null("paused_at")?,
            created_at: row.time("created_at")?,
        })
    }
}

impl Store {
    /// Creates a hook, or changes the hook of that name. Returns false if the name belongs to a hook of another
    /// project.
    pub async fn put_hook(&self, hook: Hook, now: Option<Timestamp>) -> Result<bool, Error> {
        let rules = serde_json::to_value(&hook.rules)
            .map_err(|source| Error::database("store a hook", sqlx::Error::Encode(Box::new(source))))?;
        self.write(move |mut tx| {
            Box::pin(async move {
                let at = tx.time(now);
                let written = on!(
                    tx,
                    catalog::HOOK_PUT,
                    [
                        hook.hook.as_str(),
                        hook.project_id.as_str(),
                        hook.kind.as_str(),
                        hook.secret_env.as_str(),
                        SqlJson(rules.clone()),
                        hook.paused_at.map(SqlTime),
                        at,
                    ],
                    execute,
                    "store a hook"
                )?;
                if written.count() == 0 {
                    // The caller reports a conflict: nothing was changed.
                    tx.skip_audit();
                }
                Ok(written.count() > 0)
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
