//! Tokens: create, list, revoke.

use crate::access::{Caller, invisible_project};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, IdempotencyKey, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use serde_json::json;
use tidemill_core::access::{Role, Token};
use tidemill_core::project_set::ProjectSet;
use tidemill_engine::access::TokenCreation;
use tidemill_store::ListPage;
use tidemill_wire::access::{ListTokens, NewToken, NewTokenResponse};
use tidemill_wire::{FieldError, Page};
use uuid::Uuid;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/tokens", Permission::Admin, create)
            .describe("access", "Create a token; only this response contains its secret")
            .body::<NewToken>()
            .keyed()
            .responds::<NewTokenResponse>(
                201,
                "The token with its secret; a repeated request with the same key is refused",
            ),
        Endpoint::new(Method::GET, "/v1/tokens", Permission::Admin, list)
            .describe("access", "List tokens, newest first")
            .query::<ListTokens>()
            .responds::<Page<Token>>(200, "One page of tokens"),
        Endpoint::new(Method::DELETE, "/v1/tokens/{token}", Permission::Admin, revoke)
            .describe("access", "Revoke a token")
            .responds::<Token>(200, "The token; revoking it again has no effect"),
    ]
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<NewTokenResponse>), ApiError> {
    let key = caller.request_key("POST /v1/tokens", key, &new);
    let projects = projects(&caller, &new)?;
    let NewToken { name, role, expires_in_secs, .. } = new;
    let new = tidemill_core::access::NewToken { name, role, projects, expires_in_secs };
    app.annotate_audit(|line| {
        line.add_detail("name", new.name.as_str())
            .add_detail("role", json!(new.role))
            .add_detail("projects", json!(new.projects));
    });
    let (token, secret) = match app.engine().create_token_once(new, &caller.name, key).await? {
        TokenCreation::Created(token, secret) => (*token, secret),
        TokenCreation::AlreadyCreated(token) => return Err(already_created(&token)),
    };
    let made = NewTokenResponse { token, secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Returns the projects of a new token. The projects of an agent's token decide which jobs a machine executes, so all
/// projects are never a default for it. An admin of one project cannot create a token for other projects.
fn projects(caller: &Caller, new: &NewToken) -> Result<ProjectSet, ApiError> {
    if new.all_projects {
        caller.require_all_projects()?;
    }
    if let Some(hidden) = new.projects.iter().find(|project| !caller.can_see(project)) {
        return Err(invisible_project(hidden));
    }
    let (field, problem) = match (new.projects.is_empty(), new.all_projects) {
        (false, false) => return Ok(ProjectSet::only(new.projects.iter().cloned())),
        (false, true) => ("all_projects", "must be false if a project is named"),
        (true, false) if new.role == Role::Agent && caller.sees_all_projects() => {
            ("projects", "is required for a token of role agent, or `all_projects` must be true")
        }
        (true, true | false) => return Ok(caller.projects.clone()),
    };
    Err(ApiError::invalid(vec![FieldError { field: field.to_owned(), problem: problem.to_owned() }])
        .hint("tidemill token create NAME --role agent --project PROJECT"))
}

/// Error for a repeated request that created a token before: the secret is not stored.
fn already_created(token: &str) -> ApiError {
    let message = format!("this request already created token {token}; its secret cannot be shown again");
    ApiError::new(StatusCode::CONFLICT, "token_made", message)
        .hint(format!("if the secret is lost: tidemill token revoke {token}, then create another token"))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListTokens>,
) -> Result<Json<Page<Token>>, ApiError> {
    let limit = rows(params.limit)?;
    let slice = ListPage { project: caller.narrow_project(params.project)?, before: params.after, limit };
    let items = app.engine().store().tokens(slice).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|token| token.token_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Id(token): Id<Uuid>,
) -> Result<Json<Token>, ApiError> {
    let project = caller.own_project()?;
    Ok(Json(app.keyring().revoke(app.engine(), token, project.as_deref(), &caller.name).await?))
}
