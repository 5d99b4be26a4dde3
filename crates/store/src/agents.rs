//! Agents: one row each, which they keep alive, and which says who may speak for them.

use crate::codec::{At, Bare, Columns, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Refusal, RefusalCode, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::access::{Standing, standing};
use tidemill_core::agent::{Agent, NewAgent};
use uuid::Uuid;

/// An agent, with what only the server knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAgent {
    /// The agent.
    pub agent: Agent,
    /// The token that may speak for it.
    pub token_id: Option<Uuid>,
    /// When a person said that it does not come back.
    pub forgotten_at: Option<Timestamp>,
    /// SHA-256 of what only its directory knows.
    pub secret_hash: Option<String>,
}

impl FromColumns for KnownAgent {
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
            },
            token_id: row.uuid_or_null("token_id")?,
            forgotten_at: row.time_or_null("forgotten_at")?,
            secret_hash: row.text_or_null("secret_hash")?,
        })
    }
}

struct Used(Uuid, i64);

impl FromColumns for Used {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.uuid("agent_id")?, row.long("used")?))
    }
}

/// An agent that the caller may not know of reads as one that does not exist.
pub(crate) fn unknown(agent: Uuid) -> Error {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist"))
}

impl Tx<'_> {
    /// Registers an agent, or the next process of one that is known. Only the token that it came with may; another one
    /// when that is over, and from the agent's own directory.
    pub async fn register_agent(&mut self, new: &NewAgent, now: Option<Timestamp>) -> Result<Agent, Error> {
        let known = self.lock_agent(new.agent_id).await?;
        match known.filter(|known| known.token_id != new.token_id) {
            Some(known) => self.rebind_agent(&known, new, now).await?,
            // That an agent comes, and comes back, is no news; that another token speaks for it is.
            None => self.unchanged(),
        }
        let time = self.time(now);
        on!(
            self,
            catalog::AGENT_PUT,
            [
                Bare(new.agent_id),
                new.name.as_str(),
                new.host.as_str(),
                Words(new.labels.clone()),
                new.capacity,
                new.version.as_str(),
                new.project_id.as_deref(),
                new.token_id.map(Bare),
                Bare(new.boot_id),
                time,
                new.secret_hash.as_deref(),
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

    /// Lets another token speak for an agent, if the one that did is over and the agent's directory says so.
    async fn rebind_agent(
        &mut self,
        known: &KnownAgent,
        new: &NewAgent,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        if !new.is_proven(known.secret_hash.as_deref(), known.agent.project_id.as_deref()) {
            return Err(unknown(new.agent_id));
        }
        let now = self.database_now(now).await?;
        // An agent that came when nobody was asked for a token has none that could be good.
        let former = match known.token_id {
            Some(token) => self.token(token).await?,
            None => None,
        };
        if let Some(token) = former.filter(|token| standing(token, now) == Standing::Good) {
            return Err(Error::Refused(Refusal {
                code: RefusalCode::Frozen,
                message: format!(
                    "agent {} belongs to token `{}`, which is still good",
                    known.agent.name, token.name
                ),
                hint: Some(format!("tidemill token revoke {}", token.token_id)),
            }));
        }
        let token = new.token_id.map(Bare);
        on!(self, catalog::AGENT_REBIND, [Bare(new.agent_id), token], execute, "register an agent")?;
        self.note(|audit| {
            audit.tells("agent", known.agent.name.as_str());
            audit.tells("former_token_id", known.token_id.map(|token| token.to_string()));
        });
        tracing::info!(agent.id = %new.agent_id, "agent {} comes with another token", known.agent.name);
        Ok(())
    }

    /// Locks an agent until the step ends, and reads it.
    pub(crate) async fn lock_agent(&mut self, agent: Uuid) -> Result<Option<KnownAgent>, Error> {
        on!(self, catalog::AGENT_LOCK, [Bare(agent)], fetch_optional, "lock an agent")?
            .record("lock an agent")
    }

    /// An agent.
    pub async fn agent(&mut self, agent: Uuid) -> Result<Option<KnownAgent>, Error> {
        on!(self, catalog::AGENT_GET, [Bare(agent)], fetch_optional, "read an agent")?.record("read an agent")
    }

    /// The agents that matter to a controller: heard since then, or with tasks.
    pub async fn live_agents(&mut self, since: Timestamp) -> Result<Vec<KnownAgent>, Error> {
        Ok(on!(self, catalog::AGENT_LIVE, [At(since)], fetch_all, "read agents")?
            .readable("agents", "agent_id"))
    }

    /// Notes that an agent lives.
    pub async fn beat_agent(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::AGENT_BEAT, [Bare(agent), now], execute, "note a sign of life")?;
        Ok(())
    }

    /// Notes that an agent says goodbye.
    pub async fn leave_agent(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::AGENT_LEAVE, [Bare(agent), now], execute, "note a goodbye")?;
        Ok(())
    }

    /// How much room the jobs take that agents have.
    pub async fn agents_used(&mut self) -> Result<Vec<(Uuid, i64)>, Error> {
        let codes = crate::jobs::running_codes();
        let used: Vec<Used> =
            on!(self, catalog::AGENT_ROOM, [codes], fetch_all, "read agents")?.records("read agents")?;
        Ok(used.into_iter().map(|Used(agent, used)| (agent, used)).collect())
    }

    /// The jobs that an agent has tasks of.
    pub async fn jobs_of_agent(&mut self, agent: Uuid) -> Result<Vec<String>, Error> {
        on!(self, catalog::AGENT_JOBS, [Bare(agent)], fetch_all, "read tasks")?.records("read tasks")
    }

    /// Notes that an agent does not come back. False: that was noted before.
    pub async fn forget_agent(&mut self, agent: Uuid, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let noted = on!(self, catalog::AGENT_FORGET, [Bare(agent), now], execute, "forget an agent")?;
        Ok(noted.count() > 0)
    }

    /// Lets an agent get no new tasks, or get them again. False: there is no such agent.
    pub async fn drain_agent(&mut self, agent: Uuid, draining: bool) -> Result<bool, Error> {
        let noted = on!(self, catalog::AGENT_DRAIN, [Bare(agent), draining], execute, "drain an agent")?;
        Ok(noted.count() > 0)
    }
}

impl Store {
    /// The agents of a project, or all; those that were forgotten are left out.
    pub async fn agents(&self, project: Option<String>, limit: usize) -> Result<Vec<Agent>, Error> {
        self.glance(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let found: Vec<KnownAgent> =
                    on!(tx, catalog::AGENT_LIST, [project.as_deref(), limit], fetch_all, "list agents")?
                        .readable("agents", "agent_id");
                Ok(found.into_iter().map(|known| known.agent).collect())
            })
        })
        .await
    }

    /// An agent.
    pub async fn agent(&self, agent: Uuid) -> Result<Option<KnownAgent>, Error> {
        self.glance(move |mut tx| Box::pin(async move { tx.agent(agent).await })).await
    }
}
