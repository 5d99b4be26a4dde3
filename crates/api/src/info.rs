//! What the server says of itself.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::health::loop_health;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{Method, header};
use std::sync::OnceLock;
use tidemill_wire::info::Info;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/info", Allowed::Anyone, info)
            .says("server", "Say which server this is, and who it takes the caller for")
            .answers::<Info>(200, "The server"),
        Endpoint::new(Method::GET, "/openapi.json", Allowed::Anyone, openapi)
            .open()
            .says("server", "Describe every route")
            .answers::<serde_json::Map<String, serde_json::Value>>(200, "An OpenAPI 3.1 document"),
    ]
}

async fn info(State(app): State<App>, caller: Caller) -> Result<Json<Info>, Fail> {
    let engine = app.engine();
    let now = engine.store().now(engine.clock().now()).await?;
    // An error may name things of any project.
    let states = if caller.sees_all().is_ok() { engine.store().monitor().loops() } else { Vec::new() };
    let loops = states.into_iter().map(|state| loop_health(state, |error| error.detail)).collect();
    Ok(Json(Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now,
        caller: caller.name,
        role: caller.role.to_string(),
        project: caller.project,
        loops,
    }))
}

async fn openapi() -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| crate::document().to_string().into()).clone();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
