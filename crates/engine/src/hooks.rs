//! Webhooks that come in: who may send is settled first, and then what follows from it.

use crate::Engine;
use tidemill_core::hook::{Decision, Hook, HookKind, decide, fill_in, run_of};
use tidemill_core::limits::HOOK_WINDOW_SECS;
use tidemill_core::run::{QueueRun, Queued};
use tidemill_core::signature::verify;
use tidemill_core::{Json, Timestamp};
use tidemill_store::{Error, Refusal, RefusalCode};

/// What a sender says of itself, beside the body.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// What GitHub signed.
    pub github_signature: Option<String>,
    /// What GitHub calls the event.
    pub github_event: Option<String>,
    /// What GitHub calls this delivery.
    pub github_delivery: Option<String>,
    /// When anybody else signed, in seconds since 1970.
    pub timestamp: Option<String>,
    /// What they signed.
    pub signature: Option<String>,
}

impl Claims {
    /// When it was signed, as its sender says.
    fn signed_at(&self) -> Option<Timestamp> {
        Timestamp::from_timestamp(self.timestamp.as_deref()?.parse().ok()?, 0)
    }
}

/// Whether a sender is who may send.
#[derive(Debug)]
pub enum Sender {
    /// It is: the hook that it knows the secret of.
    Known(Box<Hook>),
    /// It is not, or there is no such hook. Nobody learns which.
    Unknown,
    /// The secret is not where the hook says: nobody can be known.
    NoSecret(Box<Hook>),
}

/// What came of a delivery.
#[derive(Debug)]
pub enum Received {
    /// A run, new or from the same delivery before.
    Queued(Queued),
    /// Nothing, and why.
    Ignored(String),
}

impl Engine {
    /// Makes a hook, or changes the one of that name within its project.
    pub async fn put_hook(&self, hook: Hook) -> Result<Hook, Error> {
        hook.check()?;
        let projects = self.store().projects().await?;
        let Some(project) = projects.iter().find(|project| project.project_id == hook.project_id) else {
            return Err(Error::unknown_project(&hook.project_id, None));
        };
        // Rules that nobody chose may name environments that are not there yet; those that somebody wrote must not.
        let missing = hook.rules.iter().find(|rule| !project.environments.contains(&rule.env));
        if let Some(rule) = missing
            && hook.rules != tidemill_core::hook::default_rules()
        {
            return Err(no_environment(&hook, &rule.env));
        }
        let name = hook.hook.clone();
        if !self.store().put_hook(hook.clone(), self.clock().now()).await? {
            let message = format!("hook `{name}` exists already, and belongs to something else");
            return Err(Error::Refused(Refusal {
                code: RefusalCode::KeyConflict,
                message,
                hint: Some("choose another name".to_owned()),
            }));
        }
        let found = self.store().hooks(Some(name), None).await?;
        Ok(found.into_iter().next().unwrap_or(hook))
    }

    /// Who sends this body. Nothing of the body is looked at before.
    pub async fn sender(&self, name: &str, claims: &Claims, body: &[u8]) -> Result<Sender, Error> {
        let hook = self.store().hooks(Some(name.to_owned()), None).await?.into_iter().next();
        let now = self.store().now(self.clock().now()).await?;
        // As much work as for a hook that exists and has its secret, so that the time tells nothing.
        let in_vain = || is_signed(HookKind::Github, b"nobody knows this", claims, body, now);
        let Some(hook) = hook else {
            let _ = in_vain();
            return Ok(Sender::Unknown);
        };
        let Some(secret) = std::env::var(&hook.secret_env).ok().filter(|secret| !secret.is_empty()) else {
            let _ = in_vain();
            return Ok(Sender::NoSecret(Box::new(hook)));
        };
        let known = is_signed(hook.kind, secret.as_bytes(), claims, body, now);
        Ok(if known { Sender::Known(Box::new(hook)) } else { Sender::Unknown })
    }

    /// Carries out what follows from a delivery of GitHub whose sender is known.
    pub async fn receive_github(
        &self,
        hook: &Hook,
        claims: &Claims,
        payload: &Json,
    ) -> Result<Received, Error> {
        if hook.paused_at.is_some() {
            return Ok(paused(hook));
        }
        let event = claims.github_event.as_deref().unwrap_or_default();
        let Some(delivery) = claims.github_delivery.as_deref().filter(|id| is_delivery(id)) else {
            let message = "X-GitHub-Delivery is missing, or is no id of a delivery";
            return Err(Error::refused(RefusalCode::BadValue, message));
        };
        match decide(hook, event, delivery, payload)? {
            Decision::Ignore(why) => Ok(Received::Ignored(why)),
            Decision::Queue(run) => said(hook, &run.env.clone(), self.queue(*run).await),
        }
    }

    /// Queues what a signed body of anybody else asks for; `read` makes a request of it. One signed delivery is one
    /// run, under whatever key it comes.
    pub async fn receive_generic<E: From<Error>>(
        &self,
        hook: &Hook,
        claims: &Claims,
        body: Json,
        read: impl FnOnce(Json) -> Result<QueueRun, E>,
    ) -> Result<Received, E> {
        if hook.paused_at.is_some() {
            return Ok(paused(hook));
        }
        let run = read(fill_in(hook, body).map_err(Error::from)?)?;
        let signature = claims.signature.as_deref().unwrap_or_default();
        let Some(signed_at) = claims.signed_at() else {
            return Err(Error::refused(RefusalCode::BadValue, "X-Tidemill-Timestamp is no time").into());
        };
        let run_id = run_of(hook, signed_at, signature);
        Ok(said(hook, &run.env.clone(), self.queue_as(run, run_id).await)?)
    }
}

/// What came of a run of a hook. An environment that is not there is a fault of the rules, and said as one.
fn said(hook: &Hook, env: &str, queued: Result<Queued, Error>) -> Result<Received, Error> {
    match queued {
        Ok(queued) => Ok(Received::Queued(queued)),
        Err(error) if error.refusal_code() == Some(RefusalCode::UnknownEnvironment) => {
            Err(no_environment(hook, env))
        }
        Err(error) => Err(error),
    }
}

fn no_environment(hook: &Hook, env: &str) -> Error {
    let project = &hook.project_id;
    Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!(
            "hook {} leads to environment `{env}`, which project `{project}` has not",
            hook.hook
        ),
        hint: Some(format!("tidemill project create {project} --env {env}")),
    })
}

fn paused(hook: &Hook) -> Received {
    Received::Ignored(format!("hook {} is paused", hook.hook))
}

fn is_delivery(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the body was signed with this secret, and lately where the time is signed too.
fn is_signed(kind: HookKind, secret: &[u8], claims: &Claims, body: &[u8], now: Timestamp) -> bool {
    match kind {
        HookKind::Github => {
            let given = claims.github_signature.as_deref().and_then(|text| text.strip_prefix("sha256="));
            verify(secret, &[body], given.unwrap_or_default())
        }
        HookKind::Generic => {
            let time = claims.timestamp.as_deref().unwrap_or_default();
            let given = claims.signature.as_deref().and_then(|text| text.strip_prefix("v1="));
            let signed = verify(secret, &[time.as_bytes(), b".", body], given.unwrap_or_default());
            let lately = claims.signed_at().is_some_and(|at| {
                at.timestamp().abs_diff(now.timestamp()) <= HOOK_WINDOW_SECS.unsigned_abs()
            });
            signed & lately
        }
    }
}
