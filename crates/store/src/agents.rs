//! Agents: one row each, with its heartbeat and the token that may act for it.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::access::{TokenStatus, token_status};
use tidemill_core::agent::{Agent, NewAgent};
use uuid::Uuid;

/// An agent, with the columns that only the server reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    pub agent: Agent,
    /// Token that may act for the agent.
    pub token_id: Option<Uuid>,
    /// When an operator declared that the agent will not return.
    pub forgotten_at: Option<Timestamp>,
    /// SHA-256 of the secret in the agent's directory.
    pub secret_hash: Option<String>,
}

impl FromColumns for AgentRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            agent: Agent {
                agent_id: row.uuid("agent_id")?,
                name: row.text("name")?,
                host: row.text("host")?,
                labels: row.words("labels")?,
                capacity: row.int("capacity")?,
                version: row.text("version")?,
                project_id: row.text_or_null("project_id")?,
                boot_id: row.uuid("boot_id")?,
                draining: row.truth("draining")?,
                registered_at: row.time("registered_at")?,
                seen_at: row.time("seen_at")?,
                left_at: row.time_or_null("left_at")?,
                // A report of another shape counts as no report: the agent must still be listed.
                isolation: row.json_or_null("isolation")?.and_then(|json| serde_json::from_value(json).ok()),
            },
            token_id: row.uuid_or_null("token_id")?,
            forgotten_at: row.time_or_null("forgotten_at")?,
            secret_hash: row.text_or_null("secret_hash")?,
        })
    }
}

struct AgentUse(Uuid, i64);

impl FromColumns for AgentUse {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.uuid("agent_id")?, row.long("used")?))
    }
}

/// The same error for an agent that the caller may not see and for one that does not exist.
pub(crate) fn unknown(agent: Uuid) -> Error {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist"))
}

impl Tx<'_> {
    /// Registers an agent, or the next process of a known agent. Only the token of the first registration may do this.
    /// Another token may take over once that one is invalid, if the agent proves the secret of its directory.
    pub async fn register_agent(&mut self, new: &NewAgent, now: Option<Timestamp>) -> Result<Agent, Error> {
        let known = self.lock_agent(new.agent_id).await?;
        match known.filter(|known| known.token_id != new.token_id) {
            Some(known) => self.rebind_agent(&known, new, now).await?,
            // Only a change of the token is audited, not every start of an agent.
            None => self.skip_audit(),
        }
        let time = self.time(now);
        let isolation =
            new.isolation.as_ref().and_then(|report| serde_json::to_value(report).ok()).map(SqlJson);
        on!(
            self,
            catalog::AGENT_PUT,
            [
                SqlUuid(new.agent_id),
                new.name.as_str(),
                new.host.as_str(),
                SqlTextList(new.labels.clone()),
                new.capacity,
                new.version.as_str(),
                new.project_id.as_deref(),
                new.token_id.map(SqlUuid),
                SqlUuid(new.boot_id),
                time,
                new.secret_hash.as_deref(),
                isolation.clone(),
            ],
            execute,
            "register an agent"
        )?;
        let known = self.agent(new.agent_id).await?.ok_or_else(|| unknown(new.agent_id))?;
        if known.token_id != new.token_id {
            return Err(unknown(new.agent_id));
        }
        Ok(known.agent)
    }

    /// Binds the agent to another token, if its former token is invalid and the agent proves the secret of its
    /// directory.
    async fn rebind_agent(
        &mut self,
        known: &AgentRecord,
        new: &NewAgent,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        if !new.is_proven(known.secret_hash.as_deref(), known.agent.project_id.as_deref()) {
            return Err(unknown(new.agent_id));
        }
        let now = self.database_now(now).await?;
        // An agent that registered without authentication has no former token.
        let former = match known.token_id {
            Some(token) => self.token(token).await?,
            None => None,
        };
        if let Some(token) = former.filter(|token| token_status(token, now) == TokenStatus::Valid) {
            return Err(Error::Refused(Refusal {
                code: RefusalCode::Frozen,
                message: format!(
                    "agent {} belongs to token `{}`, which is still valid",
                    known.agent.name, token.name
                ),
                hint: Some(format!("tidemill token revoke {}", token.token_id)),
            }));
        }
        let token = new.token_id.map(SqlUuid);
        on!(self, catalog::AGENT_REBIND, [SqlUuid(new.agent_id), token], execute, "register an agent")?;
        self.annotate_audit(|audit| {
            audit.add_detail("agent", known.agent.name.as_str());
            audit.add_detail("former_token_id", known.token_id.map(|token| token.to_string()));
        });
        tracing::info!(agent.id = %new.agent_id, "agent {} registered with another token", known.agent.name);
        Ok(())
    }

    /// Locks an agent until the transaction ends, and reads it.
    pub(crate) async fn lock_agent(&mut self, agent: Uuid) -> Result<Option<AgentRecord>, Error> {
        on!(self, catalog::AGENT_LOCK, [SqlUuid(agent)], fetch_optional, "lock an agent")?
            .record("lock an agent")
    }

    pub async fn agent(&mut self, agent: Uuid) -> Result<Option<AgentRecord>, Error> {
        on!(self, catalog::AGENT_GET, [SqlUuid(agent)], fetch_optional, "read an agent")?
            .record("read an agent")
    }

    /// Returns the agents with a heartbeat since `since` or with open tasks.
    pub async fn live_agents(&mut self, since: Timestamp) -> Result<Vec<AgentRecord>, Error> {
        Ok(on!(self, catalog::AGENT_LIVE, [SqlTime(since)], fetch_all, "read agents")?
            .readable("agents", "agent_id"))
    }

    /// Records a heartbeat of an agent.
    pub async fn record_agent_heartbeat(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::AGENT_BEAT, [SqlUuid(agent), now], execute, "record a heartbeat")?;
        Ok(())
    }

    /// Records that an agent shut down.
    pub async fn record_agent_leave(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::AGENT_LEAVE, [SqlUuid(agent), now], execute, "record that an agent left")?;
        Ok(())
    }

    /// Returns the capacity that running jobs use on each agent.
    pub async fn agents_used(&mut self) -> Result<Vec<(Uuid, i64)>, Error> {
        let codes = crate::jobs::running_codes();
        let used: Vec<AgentUse> =
            on!(self, catalog::AGENT_ROOM, [codes], fetch_all, "read agents")?.records("read agents")?;
        Ok(used.into_iter().map(|AgentUse(agent, used)| (agent, used)).collect())
    }

    /// Returns the jobs with tasks on an agent.
    pub async fn jobs_of_agent(&mut self, agent: Uuid) -> Result<Vec<String>, Error> {
        on!(self, catalog::AGENT_JOBS, [SqlUuid(agent)], fetch_all, "read tasks")?.records("read tasks")
    }

    /// Records that an agent will not return. Returns false if that was recorded before.
    pub async fn forget_agent(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let updated = on!(self, catalog::AGENT_FORGET, [SqlUuid(agent), now], execute, "forget an agent")?;
        Ok(updated.count() > 0)
    }

    /// Sets whether an agent gets new tasks. Returns false if the agent does not exist.
    pub async fn drain_agent(&mut self, agent: Uuid, draining: bool) -> Result<bool, Error> {
        let updated = on!(self, catalog::AGENT_DRAIN, [SqlUuid(agent), draining], execute, "drain an agent")?;
        Ok(updated.count() > 0)
    }
}

impl Store {
    /// Lists the agents of a project, or all. Forgotten agents are left out.
    pub async fn agents(&self, project: Option<String>, limit: usize) -> Result<Vec<Agent>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let found: Vec<AgentRecord> =
                    on!(tx, catalog::AGENT_LIST, [project.as_deref(), limit], fetch_all, "list agents")?
                        .readable("agents", "agent_id");
                Ok(found.into_iter().map(|known| known.agent).collect())
            })
        })
        .await
    }

    pub async fn agent(&self, agent: Uuid) -> Result<Option<AgentRecord>, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.agent(agent).await })).await
    }
}
