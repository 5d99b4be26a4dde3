//! Tokens: made, listed, revoked.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Id, IdempotencyKey, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use serde_json::json;
use tidemill_core::access::Token;
use tidemill_engine::access::TokenAsked;
use tidemill_store::{Slice, note};
use tidemill_wire::Page;
use tidemill_wire::access::{ListTokens, NewToken, TokenMade};
use uuid::Uuid;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/tokens", Allowed::Admin, create)
            .says("access", "Make a token; its secret is shown this once")
            .body::<NewToken>()
            .keyed()
            .answers::<TokenMade>(
                201,
                "The token and its secret; a key that was used before makes no other token",
            ),
        Endpoint::new(Method::GET, "/v1/tokens", Allowed::Admin, list)
            .says("access", "List tokens, the youngest first")
            .query::<ListTokens>()
            .answers::<Page<Token>>(200, "One page of tokens"),
        Endpoint::new(Method::DELETE, "/v1/tokens/{token}", Allowed::Admin, revoke)
            .says("access", "Revoke a token: it is worth nothing from now on")
            .answers::<Token>(200, "The token; revoked twice, it is revoked once"),
    ]
}

async fn create(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMade>), Fail> {
    let key = caller.keyed("POST /v1/tokens", key, &new);
    let new = tidemill_core::access::NewToken {
        name: new.name,
        role: new.role,
        // An admin of one project gives nobody more than they have.
        project_id: caller.narrow(new.project)?,
        expires_in_secs: new.expires_in_secs,
    };
    note(|line| {
        line.tells("name", new.name.as_str()).tells("role", json!(new.role));
    });
    let (token, secret) = match app.engine().create_token_once(new, &caller.name, key).await? {
        TokenAsked::Made(token, secret) => (*token, secret),
        TokenAsked::Before(token) => return Err(made_before(&token)),
    };
    let made = TokenMade { token, secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, Json(made)))
}

/// What is said when a request that made a token is asked again: its secret was never kept.
fn made_before(token: &str) -> Fail {
    let message = format!("this request made token {token} already, and its secret was shown that once");
    Fail::new(StatusCode::CONFLICT, "token_made", message)
        .hint(format!("where the secret was lost: tidemill token revoke {token}, and make another"))
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListTokens>,
) -> Result<Json<Page<Token>>, Fail> {
    let limit = rows(asked.limit)?;
    let slice = Slice { project: caller.narrow(asked.project)?, before: asked.after, limit };
    let items = app.engine().store().tokens(slice).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|token| token.token_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn revoke(State(app): State<App>, caller: Caller, Id(token): Id<Uuid>) -> Result<Json<Token>, Fail> {
    Ok(Json(app.keyring().revoke(token, caller.project.as_deref(), &caller.name).await?))
}
