//! Feeds with a definition: their settings, and the tables that receive their records.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Id, ValidBody};
use crate::scope::Name;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::feed::Feed;
use tidemill_core::feed_definition::FeedDefinition;
use tidemill_core::limits::FEED_DEFINITION_BYTES_MAX;
use tidemill_core::records::FeedTablePlan;
use tidemill_engine::sync::{FeedChange, parse_definition};
use tidemill_wire::FieldError;
use tidemill_wire::feeds::PutFeed;

/// Body size limit for a definition. As JSON, line ends and quotes of its text take two bytes each.
pub(super) const BODY_BYTES_MAX: usize = 2 * FEED_DEFINITION_BYTES_MAX;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/plan", Permission::Admin, plan)
            .describe(
                "feeds",
                "Show the table that a feed would have with a definition, without changing anything",
            )
            .body::<PutFeed>()
            .body_limit(BODY_BYTES_MAX)
            .responds::<FeedTablePlan>(200, "The table, and the statements that it needs"),
        Endpoint::new(Method::GET, "/v1/feeds/{feed}/table", Permission::Read, table)
            .describe("feeds", "Show the table of a feed with a definition, and the statements that it needs")
            .responds::<FeedTablePlan>(200, "The table"),
        Endpoint::new(Method::POST, "/v1/feeds/{feed}/table", Permission::Admin, create_table)
            .describe("feeds", "Create the table of a feed with a definition, or add its missing columns")
            .responds::<FeedTablePlan>(200, "The table after the statements"),
    ]
}

/// Converts a request to a change. Errors of a definition are reported with their positions.
pub(super) async fn change_of(app: &App, name: String, put: PutFeed) -> Result<FeedChange, ApiError> {
    let definition = match &put.definition {
        Some(text) => Some(parse(&name, text.clone()).await?),
        None => None,
    };
    let (endpoint, rate) = match definition {
        Some(definition) => (definition.client.base_url, definition.client.rate),
        None => (put.endpoint, put.rate),
    };
    let feed = Feed {
        feed: name,
        project_id: put.project_id,
        kind: put.kind,
        endpoint,
        username: put.username,
        password_env: put.password_env,
        rate,
        settings: put.settings,
        defined_by: app.access().author(),
        created_at: app.engine().store().now(app.engine().clock().now()).await?,
    };
    Ok(FeedChange {
        feed,
        definition: put.definition,
        copy_url: put.copy_url,
        schedule: put.schedule,
        full_schedule: put.full_schedule,
        time_zone: put.time_zone,
    })
}

async fn parse(name: &str, text: String) -> Result<FeedDefinition, ApiError> {
    // Parsing a large definition takes long enough to block the runtime.
    let parsed = tokio::task::spawn_blocking(move || parse_definition(&text)).await;
    let parsed = parsed.map_err(|_| ApiError::internal("the parser of definitions panicked"))?;
    let definition = parsed.map_err(ApiError::bad_feed)?;
    if definition.feed == name {
        return Ok(definition);
    }
    let problem = format!("is of feed `{}`; the path names feed `{name}`", definition.feed);
    Err(ApiError::invalid(vec![FieldError { field: "definition".to_owned(), problem }]))
}

async fn plan(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
    ValidBody(put): ValidBody<PutFeed>,
) -> Result<Json<FeedTablePlan>, ApiError> {
    super::check_may_put(&app, &caller, &name, &put).await?;
    if put.definition.is_none() {
        let problem = "is required: only feeds with a definition have a table of their own".to_owned();
        return Err(ApiError::invalid(vec![FieldError { field: "definition".to_owned(), problem }]));
    }
    // A plan changes nothing, although it is a POST: it is not audited.
    app.skip_audit();
    let change = change_of(&app, name, put).await?;
    Ok(Json(app.syncs().plan_feed(change).await?))
}

async fn table(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<FeedTablePlan>, ApiError> {
    caller.feed(&app, &name).await?;
    Ok(Json(app.syncs().table_plan(&name).await?))
}

async fn create_table(
    State(app): State<App>,
    caller: Caller,
    Id(Name(name)): Id<Name>,
) -> Result<Json<FeedTablePlan>, ApiError> {
    caller.feed(&app, &name).await?;
    let plan = app.syncs().table_plan(&name).await?;
    if plan.statements.is_empty() {
        app.skip_audit();
        return Ok(Json(plan));
    }
    Ok(Json(app.syncs().create_table(&name).await?))
}
