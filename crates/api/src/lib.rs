//! The HTTP door. It has no rules of its own: each route calls one use case of the engine, and says what came of it.
//!
//! Every route is an [`endpoint::Endpoint`]: its path, who may call it, what it takes and what it answers stand in one
//! place, from which the router, the checks of access and the OpenAPI document are made. A route that is not there
//! does not exist.

pub mod access;
mod agents;
mod alerts;
mod answer;
mod app;
mod audit;
mod claims;
mod codes;
mod cursor;
mod docs;
mod endpoint;
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
mod waiting;
mod workers;

pub use answer::{Cause, Fail, nowhere};
pub use app::App;
pub use endpoint::{Allowed, Endpoint};
pub use openapi::document;

use axum::Router;

/// Every route that exists.
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

/// The whole door on one engine.
pub fn router(app: App) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints() {
        router = endpoint.mount(router, &app);
    }
    router.fallback(answer::nowhere).method_not_allowed_fallback(answer::wrong_method).with_state(app)
}
