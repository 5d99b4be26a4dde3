//! Statistics for the console's overview.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::stats::Stats;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/stats", Permission::Read, stats)
            .describe("server", "Count current and recent runs")
            .responds::<Stats>(200, "The counts for the projects that the caller sees"),
    ]
}

async fn stats(State(app): State<App>, caller: Caller) -> Result<Json<Stats>, ApiError> {
    let engine = app.engine();
    Ok(Json(engine.store().stats_of(caller.own_project()?, engine.clock().now()).await?))
}
