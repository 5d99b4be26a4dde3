//! Incoming webhooks: authentication of the sender, and the run that a delivery queues.

use crate::Engine;
use tidemill_core::hook::{Decision, Hook, HookKind, decide, fill_in, run_of};
use tidemill_core::limits::HOOK_WINDOW_SECS;
use tidemill_core::reach::{DefinedBy, Reach, ReachError, Use};
use tidemill_core::run::QueueRun;
use tidemill_core::signature::verify;
use tidemill_core::{Json, Timestamp};
use tidemill_store::{Error, HookRun, Refusal, RefusalCode};

/// Headers that identify and authenticate a delivery.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    pub github_signature: Option<String>,
    pub github_event: Option<String>,
    pub github_delivery: Option<String>,
    /// Unix time of the signature, for senders other than GitHub.
    pub timestamp: Option<String>,
    pub signature: Option<String>,
}

impl Claims {
    /// Returns the sender's time of the signature.
    fn signed_at(&self) -> Option<Timestamp> {
        Timestamp::from_timestamp(self.timestamp.as_deref()?.parse().ok()?, 0)
    }
}

/// Outcome of authenticating a sender.
#[derive(Debug)]
pub enum Sender {
    /// The signature is valid for this hook.
    Known(Box<Hook>),
    /// The signature is invalid or the hook does not exist. The response does not reveal which.
    Unknown,
    /// The hook's environment variable with the secret is not set, so no sender can be authenticated.
    NoSecret(Box<Hook>),
    /// The operator's lists do not let the hook's project use this secret.
    OutOfReach(Box<Hook>, ReachError),
}

/// Outcome of a delivery.
#[derive(Debug)]
pub enum Received {
    /// A run, new or queued before by the same delivery.
    Queued(HookRun),
    /// No run, with the reason.
    Ignored(String),
}

impl Engine {
    /// Creates a hook or changes the one with this name in its project.
    pub async fn put_hook(&self, hook: Hook) -> Result<Hook, Error> {
        hook.check()?;
        let projects = self.store().projects().await?;
        let Some(project) = projects.iter().find(|project| project.project_id == hook.project_id) else {
            return Err(Error::unknown_project(&hook.project_id, None));
        };
        // The default rules may name environments that do not exist yet; explicit rules must not.
        let missing = hook.rules.iter().find(|rule| !project.environments.contains(&rule.env));
        if let Some(rule) = missing
            && hook.rules != tidemill_core::hook::default_rules()
        {
            return Err(no_environment(&hook, &rule.env));
        }
        let (name, reach, now) = (hook.hook.clone(), self.reach.clone(), self.clock().now());
        let mut stored = hook.clone();
        let is_ours = self
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let before = tx.lock_hook(&stored.hook).await?;
                    stored.defined_by = author(&stored, before.as_ref(), &reach)?;
                    tx.put_hook(&stored, now).await
                })
            })
            .await?;
        if !is_ours {
            let message = format!("hook `{name}` already exists in another project");
            return Err(Error::Refused(Refusal {
                code: RefusalCode::KeyConflict,
                message,
                hint: Some("choose another name".to_owned()),
            }));
        }
        let found = self.store().hooks(Some(name), None).await?;
        Ok(found.into_iter().next().unwrap_or(hook))
    }

    /// Authenticates the sender of a body. The body is not parsed before.
    pub async fn sender(&self, name: &str, claims: &Claims, body: &[u8]) -> Result<Sender, Error> {
        let hook = self.store().hooks(Some(name.to_owned()), None).await?.into_iter().next();
        let now = self.store().now(self.clock().now()).await?;
        // An unknown hook costs as much work as an existing one, so that the response time reveals nothing.
        let dummy_check = || is_signed(HookKind::Github, b"placeholder secret", claims, body, now);
        let Some(hook) = hook else {
            let _ = dummy_check();
            return Ok(Sender::Unknown);
        };
        if let Err(error) = check_reach(&hook, &self.reach) {
            let _ = dummy_check();
            return Ok(Sender::OutOfReach(Box::new(hook), error));
        }
        let Some(secret) = std::env::var(&hook.secret_env).ok().filter(|secret| !secret.is_empty()) else {
            let _ = dummy_check();
            return Ok(Sender::NoSecret(Box::new(hook)));
        };
        let known = is_signed(hook.kind, secret.as_bytes(), claims, body, now);
        Ok(if known { Sender::Known(Box::new(hook)) } else { Sender::Unknown })
    }

    /// Queues the run that an authenticated GitHub delivery leads to. One signed body queues one run, with any id of
    /// the delivery; `body_hash` is its SHA-256.
    pub async fn receive_github(
        &self,
        hook: &Hook,
        claims: &Claims,
        body_hash: &str,
        payload: &Json,
    ) -> Result<Received, Error> {
        if hook.paused_at.is_some() {
            return Ok(paused(hook));
        }
        let event = claims.github_event.as_deref().unwrap_or_default();
        let Some(delivery) = claims.github_delivery.as_deref().filter(|id| is_delivery(id)) else {
            let message = "the X-GitHub-Delivery header is missing or not a valid delivery id";
            return Err(Error::refused(RefusalCode::BadValue, message));
        };
        match decide(hook, event, delivery, payload)? {
            Decision::Ignore(why) => Ok(Received::Ignored(why)),
            Decision::Queue(run) => {
                let env = run.env.clone();
                received(hook, &env, self.queue_hook_run(hook, body_hash, *run).await)
            }
        }
    }

    /// Queues the run that an authenticated generic delivery requests; `read` converts the body to a request. One
    /// signed delivery queues one run, with any idempotency key.
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
            return Err(
                Error::refused(RefusalCode::BadValue, "X-Tidemill-Timestamp is not a Unix time").into()
            );
        };
        let run_id = run_of(hook, signed_at, signature);
        let env = run.env.clone();
        let queued = self.queue_as(run, run_id).await;
        let queued = queued.map(|queued| HookRun { run_id: queued.run_id, created: queued.created });
        Ok(received(hook, &env, queued)?)
    }

    async fn queue_hook_run(&self, hook: &Hook, body_hash: &str, run: QueueRun) -> Result<HookRun, Error> {
        run.check()?;
        let (request, run_id) = (run.normalized(), self.clock().run_id());
        let queued = self
            .retry_policy
            .retry("queue a run", || {
                let (hook, body_hash) = (hook.hook.clone(), body_hash.to_owned());
                let (request, run_id, now) = (request.clone(), run_id.clone(), self.clock().now());
                self.store().queue_hook_run(hook, body_hash, request, run_id, now)
            })
            .await?;
        if queued.created {
            crate::transition_counts::entered("queued", &request.kind, 1);
            self.store().wake_soon();
        }
        Ok(queued)
    }
}

/// Checks the secret of a project's hook against the operator's lists.
fn check_reach(hook: &Hook, reach: &Reach) -> Result<(), ReachError> {
    match hook.defined_by {
        DefinedBy::Operator => Ok(()),
        DefinedBy::Project => reach.check(&hook.project_id, [Use::HookSecret(&hook.secret_env)]),
    }
}

/// Returns the author of a changed hook. A project that keeps the secret of the operator's hook leaves it the
/// operator's; with another one, the lists apply.
fn author(hook: &Hook, before: Option<&Hook>, reach: &Reach) -> Result<DefinedBy, Error> {
    if let Some(before) = before.filter(|before| before.has_same_reach(hook))
        && before.defined_by == DefinedBy::Operator
    {
        return Ok(DefinedBy::Operator);
    }
    check_reach(hook, reach).map_err(|error| Error::out_of_reach(&error))?;
    Ok(hook.defined_by)
}

/// Converts the outcome of queueing. A missing environment is reported as an error of the hook's rules.
fn received(hook: &Hook, env: &str, queued: Result<HookRun, Error>) -> Result<Received, Error> {
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
            "hook {} uses environment `{env}`, but project `{project}` has no such environment",
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

/// Whether the body is signed with this secret. For generic hooks the signature must also be recent.
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
