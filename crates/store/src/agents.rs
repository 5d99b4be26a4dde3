//! Agents: one row each, with its heartbeat and the token that may act for it.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::access::{Role, TokenStatus, token_status};
use tidemill_core::agent::{Agent, AgentBinding, NewAgent};
use tidemill_core::limits::AGENT_SILENT_SECS;
use uuid::Uuid;

/// An agent, with the columns that only the server reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    pub agent: Agent,
    /// Token that may act for the agent.
    pub token_id: Option<Uuid>,
    /// When an operator declared that the agent will not return.
    pub forgotten_at: Option<Timestamp>,
    pub binding: AgentBinding,
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
                projects: row.project_set("projects")?,
                draining: row.truth("draining")?,
                registered_at: row.time("registered_at")?,
                seen_at: row.time("seen_at")?,
                left_at: row.time_or_null("left_at")?,
                // A report of another shape counts as no report: the agent must still be listed.
                isolation: row.json_or_null("isolation")?.and_then(|json| serde_json::from_value(json).ok()),
            },
            token_id: row.uuid_or_null("token_id")?,
            forgotten_at: row.time_or_null("forgotten_at")?,
            binding: AgentBinding {
                boot_id: row.uuid("boot_id")?,
                secret_hash: row.text("secret_hash")?,
                dir_lock: row.text_or_null("dir_lock")?,
            },
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

/// The error for a directory whose secret is not the current one.
fn outdated_directory(agent: Uuid, name: &str) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::WrongHolder,
        message: format!(
            "the directory of agent {name} is a copy or an old backup: its secret is not the current one"
        ),
        hint: Some(format!(
            "if the current directory is lost: tidemill agent forget {agent}, and start with an empty directory"
        )),
    })
}

impl Tx<'_> {
    /// Registers an agent, or the next process of a known agent, and replaces the secret of its directory.
    ///
    /// A token of role agent speaks for one agent. Another token may take over once that one is invalid. Both need the
    /// current secret of the directory.
    pub async fn register_agent(&mut self, new: &NewAgent, now: Option<Timestamp>) -> Result<Agent, Error> {
        self.refuse_second_agent(new).await?;
        let known = self.lock_agent(new.agent_id).await?;
        match &known {
            Some(known) if known.token_id != new.token_id => self.rebind_agent(known, new, now).await?,
            // Only a change of the token is audited, not every start of an agent.
            Some(_) | None => self.skip_audit(),
        }
        if let Some(known) = &known {
            self.refuse_copy(known, new, now).await?;
        }
        let time = self.time(now);
        let isolation =
            new.isolation.as_ref().and_then(|report| serde_json::to_value(report).ok()).map(SqlJson);
        let put = on!(
            self,
            catalog::AGENT_PUT,
            [
                SqlUuid(new.agent_id),
                new.name.as_str(),
                new.host.as_str(),
                SqlTextList(new.labels.clone()),
                new.capacity,
                new.version.as_str(),
                new.projects.names().map(SqlTextList),
                new.token_id.map(SqlUuid),
                SqlUuid(new.boot_id),
                time,
                new.next_secret_hash.as_str(),
                new.dir_lock.as_deref(),
                known.as_ref().map(|known| known.binding.secret_hash.as_str()),
                isolation.clone(),
            ],
            execute,
            "register an agent"
        )?;
        if put.count() == 0 {
            return Err(outdated_directory(new.agent_id, &new.name));
        }
        let known = self.agent(new.agent_id).await?.ok_or_else(|| unknown(new.agent_id))?;
        Ok(known.agent)
    }

    /// Refuses an agent whose token is bound to another agent. Tokens of admins are not bound.
    async fn refuse_second_agent(&mut self, new: &NewAgent) -> Result<(), Error> {
        let Some(token) = new.token_id else { return Ok(()) };
        let bound = self.hold_token(token).await?.filter(|token| token.role == Role::Agent);
        let Some(bound) = bound else { return Ok(()) };
        let other: Option<AgentRecord> = on!(
            self,
            catalog::AGENT_OF_TOKEN,
            [SqlUuid(token), SqlUuid(new.agent_id)],
            fetch_optional,
            "read an agent"
        )?
        .record("read an agent")?;
        let Some(AgentRecord { agent, .. }) = other else { return Ok(()) };
        let (id, name) = (agent.agent_id, &bound.name);
        Err(Error::Refused(Refusal {
            code: RefusalCode::WrongHolder,
            message: format!("token `{name}` is bound to the directory of agent {} ({id})", agent.name),
            hint: Some(format!(
                "create a token for each agent: tidemill token create NAME --role agent --project PROJECT; \
                 if the directory is lost: tidemill agent forget {id}"
            )),
        }))
    }

    /// Refuses a process whose directory is out of date, or is a copy of the directory of a live process.
    async fn refuse_copy(
        &mut self,
        known: &AgentRecord,
        new: &NewAgent,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let agent = &known.agent;
        if !new.is_proven(&known.binding.secret_hash) {
            let (id, name) = (agent.agent_id, &agent.name);
            tracing::warn!(agent.id = %id, "agent {name} was refused: its secret is not the current one");
            return Err(outdated_directory(agent.agent_id, &agent.name));
        }
        let now = self.database_now(now).await?;
        let alive =
            if known.forgotten_at.is_some() { None } else { new.blocked_by(agent, &known.binding, now) };
        let Some(secs) = alive else { return Ok(()) };
        tracing::warn!(agent.id = %agent.agent_id, "a copy of the directory of agent {} was refused", agent.name);
        Err(Error::Refused(Refusal {
            code: RefusalCode::Frozen,
            message: format!(
                "agent {} sent a heartbeat {secs} s ago from another directory on host {}",
                agent.name, agent.host
            ),
            hint: Some(format!(
                "stop that process; this one can register {AGENT_SILENT_SECS} s after the last heartbeat"
            )),
        }))
    }

    /// Binds the agent to another token, if its former token is invalid and the agent proves the secret of its
    /// directory.
    async fn rebind_agent(
        &mut self,
        known: &AgentRecord,
        new: &NewAgent,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let is_same_scope = new.projects == known.agent.projects;
        if !is_same_scope || !new.is_proven(&known.binding.secret_hash) {
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
        if updated.count() > 0 {
            return Ok(true);
        }
        self.skip_audit();
        Ok(self.agent(agent).await?.is_some())
    }
}

impl Store {
    /// Lists the agents that execute jobs of this project alone, or all agents. Forgotten agents are left out.
    pub async fn agents(&self, project: Option<String>, limit: usize) -> Result<Vec<Agent>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let own = project.map(|project| SqlTextList(vec![project]));
                let found: Vec<AgentRecord> =
                    on!(tx, catalog::AGENT_LIST, [own.clone(), limit], fetch_all, "list agents")?
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
