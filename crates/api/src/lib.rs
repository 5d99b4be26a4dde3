//! The HTTP API. Each route calls one use case of the engine and converts its result.
//!
//! Every route is an [`endpoint::Endpoint`] with its path, permission, request and response types. The router, the
//! access check and the OpenAPI document are all built from that list.

pub mod access;
mod agents;
mod alerts;
mod app;
mod audit;
mod claim_waiters;
mod claims;
mod codes;
mod cursor;
mod docs;
mod endpoint;
mod error;
mod extract;
mod feeds;
mod flags;
mod graphs;
mod health;
mod hooks;
mod info;
mod jobs;
mod live;
pub mod metrics;
mod openapi;
mod pools;
mod projects;
mod queues;
mod rules;
mod runs;
mod schedules;
mod scope;
pub mod server;
mod sessions;
mod stats;
mod syncs;
mod tasks;
mod tokens;
mod workers;

pub use app::App;
pub use endpoint::{Endpoint, Permission};
pub use error::{ApiError, Cause, no_route};
pub use openapi::document;

use axum::Router;

/// Returns all routes of the API.
pub fn endpoints() -> Vec<Endpoint> {
    let groups = [
        info::endpoints(),
        health::endpoints(),
        metrics::endpoints(),
        runs::endpoints(),
        claims::endpoints(),
        workers::endpoints(),
        docs::endpoints(),
        projects::endpoints(),
        flags::endpoints(),
        schedules::endpoints(),
        feeds::endpoints(),
        syncs::endpoints(),
        graphs::endpoints(),
        jobs::endpoints(),
        agents::endpoints(),
        tasks::endpoints(),
        pools::endpoints(),
        rules::endpoints(),
        queues::endpoints(),
        stats::endpoints(),
        live::endpoints(),
        tokens::endpoints(),
        sessions::endpoints(),
        audit::endpoints(),
        hooks::endpoints(),
        alerts::endpoints(),
    ];
    groups.into_iter().flatten().collect()
}

/// Builds the router of the whole API.
pub fn router(app: App) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints() {
        router = endpoint.mount(router, &app);
    }
    router.fallback(error::no_route).method_not_allowed_fallback(error::wrong_method).with_state(app)
}
