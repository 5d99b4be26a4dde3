//! Webhooks that come in, and those who set them up.
//!
//! The address of a hook asks for no token: its sender is known by the signature. A hook that does not exist and a
//! signature that does not fit read the same, and take the same time.

use crate::access::{Caller, hidden_project};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id, Raw, check_text, checked, not_understood};
use axum::Json;
use axum::extract::State;
use http::{HeaderMap, Method, StatusCode};
use tidemill_core::hook::{Hook, HookKind, default_rules};
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, KEY_BYTES_MAX};
use tidemill_core::run::QueueRun;
use tidemill_engine::hooks::{Claims, Received, Sender};
use tidemill_wire::Page;
use tidemill_wire::hooks::{HookAnswer, PutHook};
use tidemill_wire::runs::NewRun;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/hooks/{hook}", Allowed::Anyone, receive)
            .open()
            .says("hooks", "Take what a webhook delivers; its signature says who sends")
            .body::<serde_json::Value>()
            .takes(HOOK_BODY_BYTES_MAX)
            .keyed()
            .answers::<HookAnswer>(201, "A run was queued")
            .answers::<HookAnswer>(200, "The same delivery came before: that run")
            .answers::<HookAnswer>(202, "Nothing follows from it"),
        Endpoint::new(Method::GET, "/v1/hooks", Allowed::Admin, list)
            .says("hooks", "List webhooks")
            .answers::<Page<Hook>>(200, "The webhooks"),
        Endpoint::new(Method::PUT, "/v1/hooks/{hook}", Allowed::Admin, put)
            .says("hooks", "Set up a webhook, or change it")
            .body::<PutHook>()
            .answers::<Hook>(200, "The webhook as it is now"),
        Endpoint::new(Method::DELETE, "/v1/hooks/{hook}", Allowed::Admin, remove)
            .says("hooks", "Remove a webhook; the runs that it queued stay")
            .empty(204, "It is gone"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Hook>>, Fail> {
    Ok(Json(Page::whole(app.engine().store().hooks(None, caller.project).await?)))
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(name): Id<String>,
    Body(put): Body<PutHook>,
) -> Result<Json<Hook>, Fail> {
    if !caller.sees(&put.project) {
        return Err(hidden_project(&put.project));
    }
    let now = app.engine().store().now(app.engine().clock().now()).await?;
    let hook = Hook {
        hook: name,
        project_id: put.project,
        kind: put.kind,
        secret_env: put.secret_env,
        rules: if put.rules.is_empty() { default_rules() } else { put.rules },
        paused_at: put.paused.then_some(now),
        created_at: now,
    };
    Ok(Json(app.engine().put_hook(hook).await?))
}

async fn remove(State(app): State<App>, caller: Caller, Id(name): Id<String>) -> Result<StatusCode, Fail> {
    app.engine().store().remove_hook(name, caller.project).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn receive(
    State(app): State<App>,
    Id(name): Id<String>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<HookAnswer>), Fail> {
    let claims = claims(&headers);
    let hook = match app.engine().sender(&name, &claims, &body).await? {
        Sender::Known(hook) => hook,
        Sender::Unknown => return Err(bad_signature()),
        // Whoever asks is not known, so they learn nothing: not even that there is such a hook.
        Sender::NoSecret(hook) => {
            tracing::error!(hook.id = %hook.hook, "hook {} takes nothing: {} is not set", hook.hook, hook.secret_env);
            return Err(bad_signature());
        }
    };
    check_text(&body)?;
    let payload = serde_json::from_slice(&body).map_err(|error| {
        not_understood(&error).hint("let the sender use the content type application/json")
    })?;
    let received = match hook.kind {
        HookKind::Github => app.engine().receive_github(&hook, &claims, &payload).await?,
        HookKind::Generic => {
            let key = key(&headers, &hook, &claims)?;
            app.engine().receive_generic(&hook, &claims, payload, |body| asked(body, key)).await?
        }
    };
    Ok(match received {
        Received::Queued(queued) => {
            let status = if queued.created { StatusCode::CREATED } else { StatusCode::OK };
            let answer = HookAnswer { run_id: Some(queued.run_id), created: queued.created, ignored: None };
            (status, Json(answer))
        }
        Received::Ignored(why) => {
            let answer = HookAnswer { run_id: None, created: false, ignored: Some(why) };
            (StatusCode::ACCEPTED, Json(answer))
        }
    })
}

fn bad_signature() -> Fail {
    let message = "the signature does not fit the body and the secret of this webhook";
    Fail::new(StatusCode::UNAUTHORIZED, "bad_signature", message)
}

fn claims(headers: &HeaderMap) -> Claims {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Claims {
        github_signature: text("x-hub-signature-256"),
        github_event: text("x-github-event"),
        github_delivery: text("x-github-delivery"),
        timestamp: text("x-tidemill-timestamp"),
        signature: text("x-tidemill-signature"),
    }
}

/// The key of a generic delivery: the sender's, or the signature. It is not signed; that one delivery is one run does
/// not depend on it.
fn key(headers: &HeaderMap, hook: &Hook, claims: &Claims) -> Result<String, Fail> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(format!("hook:{}:{}", hook.hook, claims.signature.as_deref().unwrap_or_default()));
    };
    let given = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
    given.map(str::to_owned).ok_or_else(|| {
        let problem = format!("must be 1 to {KEY_BYTES_MAX} printable ASCII characters");
        Fail::invalid(vec![tidemill_wire::Fault { field: "Idempotency-Key".to_owned(), problem }])
    })
}

fn asked(body: serde_json::Value, key: String) -> Result<QueueRun, Fail> {
    Ok(checked::<NewRun>(body)?.keyed(Some(key)))
}
