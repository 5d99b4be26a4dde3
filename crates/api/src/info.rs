//! Server information and the OpenAPI document.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
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
        Endpoint::new(Method::GET, "/v1/info", Permission::Anyone, info)
            .describe("server", "Show the server's version and the caller's identity")
            .responds::<Info>(200, "The server information"),
        Endpoint::new(Method::GET, "/openapi.json", Permission::Anyone, openapi)
            .public()
            .describe("server", "Return the OpenAPI document")
            .responds::<serde_json::Map<String, serde_json::Value>>(200, "An OpenAPI 3.1 document"),
    ]
}

async fn info(State(app): State<App>, caller: Caller) -> Result<Json<Info>, ApiError> {
    let engine = app.engine();
    let now = engine.store().now(engine.clock().now()).await?;
    // Error details may contain data of any project.
    let states =
        if caller.require_all_projects().is_ok() { engine.store().monitor().loops() } else { Vec::new() };
    let loops = states.into_iter().map(|state| loop_health(state, |error| error.detail)).collect();
    Ok(Json(Info {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now,
        caller: caller.name,
        role: caller.role.to_string(),
        projects: caller.projects,
        loops,
    }))
}

async fn openapi() -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| crate::document().to_string().into()).clone();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
