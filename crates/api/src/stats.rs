//! The key metrics.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::stats::Stats;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/stats", Allowed::Look, stats)
            .says("server", "Count what is going on, and what went on lately")
            .answers::<Stats>(200, "The numbers, of the projects that the caller sees"),
    ]
}

async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<Stats>, Fail> {
    let engine = app.engine();
    Ok(Json(engine.store().stats_of(caller.project, engine.clock().now()).await?))
}
