//! Webhooks: deliveries and their configuration.
//!
//! Deliveries need no token; the signature identifies the sender. An unknown hook and a wrong signature get the same
//! response after the same time, so that senders cannot probe for hooks.

use crate::access::{Caller, invisible_project, source};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, RawBody, check_text, parse_error, validate};
use axum::Json;
use axum::extract::State;
use http::{Extensions, HeaderMap, Method, StatusCode};
use tidemill_core::access::NewAuditRecord;
use tidemill_core::audit::ActorRole;
use tidemill_core::digest::sha256_hex;
use tidemill_core::hook::{Hook, HookKind, default_rules};
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, KEY_BYTES_MAX};
use tidemill_core::run::QueueRun;
use tidemill_engine::hooks::{Claims, Received, Sender};
use tidemill_store::AuditEntry;
use tidemill_wire::Page;
use tidemill_wire::hooks::{HookResponse, PutHook};
use tidemill_wire::runs::NewRun;
use uuid::Uuid;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/hooks/{hook}", Permission::Anyone, receive)
            .public()
            .describe("hooks", "Receive a webhook delivery, authenticated by its signature")
            .body::<serde_json::Value>()
            .body_limit(HOOK_BODY_BYTES_MAX)
            .keyed()
            .responds::<HookResponse>(201, "A run was queued")
            .responds::<HookResponse>(200, "The existing run of a repeated delivery")
            .responds::<HookResponse>(202, "The delivery was ignored"),
        Endpoint::new(Method::GET, "/v1/hooks", Permission::Admin, list)
            .describe("hooks", "List webhooks")
            .responds::<Page<Hook>>(200, "The webhooks"),
        Endpoint::new(Method::PUT, "/v1/hooks/{hook}", Permission::Admin, put)
            .describe("hooks", "Create or change a webhook")
            .body::<PutHook>()
            .responds::<Hook>(200, "The webhook"),
        Endpoint::new(Method::DELETE, "/v1/hooks/{hook}", Permission::Admin, remove)
            .describe("hooks", "Remove a webhook; its runs stay")
            .responds_empty(204, "The webhook is removed"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<Hook>>, ApiError> {
    Ok(Json(Page::complete(app.engine().store().hooks(None, caller.own_project()?).await?)))
}

async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(name): Id<String>,
    Body(put): Body<PutHook>,
) -> Result<Json<Hook>, ApiError> {
    if !caller.can_see(&put.project) {
        return Err(invisible_project(&put.project));
    }
    let now = app.engine().store().now(app.engine().clock().now()).await?;
    let hook = Hook {
        hook: name,
        project_id: put.project,
        kind: put.kind,
        secret_env: put.secret_env,
        rules: if put.rules.is_empty() { default_rules() } else { put.rules },
        defined_by: app.access().author(),
        paused_at: put.paused.then_some(now),
        created_at: now,
    };
    Ok(Json(app.engine().put_hook(hook).await?))
}

async fn remove(
    State(app): State<App>,
    caller: Caller,
    Id(name): Id<String>,
) -> Result<StatusCode, ApiError> {
    app.engine().store().remove_hook(name, caller.own_project()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn receive(
    State(app): State<App>,
    Id(name): Id<String>,
    headers: HeaderMap,
    extensions: Extensions,
    RawBody(body): RawBody,
) -> Result<(StatusCode, Json<HookResponse>), ApiError> {
    let claims = claims(&headers);
    let hook = match app.engine().sender(&name, &claims, &body).await? {
        Sender::Known(hook) => hook,
        Sender::Unknown => return Err(bad_signature()),
        // The sender is not authenticated, so the response must not reveal that the hook exists.
        Sender::NoSecret(hook) => {
            tracing::error!(hook.id = %hook.hook, "hook {} refuses deliveries: set {}", hook.hook, hook.secret_env);
            return Err(bad_signature());
        }
        Sender::OutOfReach(hook, error) => {
            let hint = error.hint();
            tracing::error!(hook.id = %hook.hook, "hook {} refuses deliveries: {error}; {hint}", hook.hook);
            return Err(bad_signature());
        }
    };
    check_text(&body)?;
    let app = app_of_hook(&app, &hook, &extensions);
    let payload = serde_json::from_slice(&body).map_err(|error| {
        parse_error(&error).hint("configure the sender to use the content type application/json")
    })?;
    let received = match hook.kind {
        HookKind::Github => app.engine().receive_github(&hook, &claims, &sha256_hex(&body), &payload).await?,
        HookKind::Generic => {
            let key = key(&headers, &hook, &claims)?;
            app.engine().receive_generic(&hook, &claims, payload, |body| queue_request(body, key)).await?
        }
    };
    Ok(match received {
        Received::Queued(queued) => {
            let status = if queued.created { StatusCode::CREATED } else { StatusCode::OK };
            let answer = HookResponse { run_id: Some(queued.run_id), created: queued.created, ignored: None };
            (status, Json(answer))
        }
        Received::Ignored(why) => {
            let answer = HookResponse { run_id: None, created: false, ignored: Some(why) };
            (StatusCode::ACCEPTED, Json(answer))
        }
    })
}

/// Returns the app whose use cases record the run that a delivery queues, with the webhook as the actor.
fn app_of_hook(app: &App, hook: &Hook, extensions: &Extensions) -> App {
    let mut entry = NewAuditRecord::of(Uuid::new_v4(), &hook.hook, ActorRole::Hook, "hooks.deliver");
    entry.set_project(Some(&hook.project_id));
    entry.source = source(extensions).map(|source| source.to_string());
    app.for_call(AuditEntry::new(entry, app.engine().clock().now()))
}

fn bad_signature() -> ApiError {
    let message = "the signature does not match the body and the secret of this webhook";
    ApiError::new(StatusCode::UNAUTHORIZED, "bad_signature", message)
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

/// Idempotency key of a generic delivery: the sender's key, or the signature. The key header is not signed; replay
/// protection does not depend on it.
fn key(headers: &HeaderMap, hook: &Hook, claims: &Claims) -> Result<String, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(format!("hook:{}:{}", hook.hook, claims.signature.as_deref().unwrap_or_default()));
    };
    let given = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
    given.map(str::to_owned).ok_or_else(|| {
        let problem = format!("must be 1 to {KEY_BYTES_MAX} printable ASCII characters");
        ApiError::invalid(vec![tidemill_wire::FieldError { field: "Idempotency-Key".to_owned(), problem }])
    })
}

fn queue_request(body: serde_json::Value, key: String) -> Result<QueueRun, ApiError> {
    Ok(validate::<NewRun>(body)?.into_request(Some(key)))
}
