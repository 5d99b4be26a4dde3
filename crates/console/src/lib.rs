//! Web console: live pages for runs, and forms that act on them.
//!
//! The console has no business rules and no database access. Each page calls the HTTP API within the same process with
//! the browser's credentials, and each form is one call of an API route. So a page shows only what its user may see,
//! and a button does exactly what the same user could do over HTTP, with the same audit entry.
//!
//! Pages work without scripts. The only script updates the changed parts of a visible page.

mod agents;
mod api_client;
mod assets;
mod audit;
mod chart;
mod confirm;
mod error_page;
mod feeds;
mod flags;
mod form_return;
mod forms;
mod graph;
mod job;
mod json_view;
mod layout;
mod not_found;
mod overview;
mod page_context;
mod queues;
mod routes;
mod run;
mod runs;
mod schedules;
mod sign_in;
mod stats_cache;
mod sync;
mod text;
mod time;
mod tokens;
mod widgets;
mod workers;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use http::{HeaderName, HeaderValue, header};
use std::sync::Arc;
use tidemill_api::App;

/// Shared state of all pages. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    inner: Arc<Inner>,
}

struct Inner {
    app: App,
    api: api_client::ApiClient,
    stats: stats_cache::StatsCache,
    paces: sync::PaceCache,
    /// Id of this server process. A page that receives another one knows that the server was restarted.
    boot: String,
}

/// Returns the console's pages, to be served next to the API's routes.
pub fn router(app: App) -> Router {
    let console = Console {
        inner: Arc::new(Inner {
            api: api_client::ApiClient::new(&app),
            app,
            stats: stats_cache::StatsCache::default(),
            paces: sync::PaceCache::default(),
            boot: uuid::Uuid::new_v4().simple().to_string(),
        }),
    };
    routes()
        .into_router()
        .method_not_allowed_fallback(not_found::wrong_method)
        .layer(from_fn(headers))
        .with_state(console)
}

/// Returns the method and path of every route of the console.
pub fn route_list() -> Vec<(http::Method, &'static str)> {
    routes().into_list()
}

fn routes() -> routes::Routes {
    routes::Routes::new()
        .get("/", overview::page)
        .get("/sign-in", sign_in::page)
        .post("/sign-in", sign_in::sign_in)
        .post("/sign-out", sign_in::sign_out)
        .get("/assets/{name}", assets::asset)
        .merge(runs::routes())
        .merge(run::routes())
        .merge(sync::routes())
        .merge(graph::routes())
        .merge(job::routes())
        .merge(agents::routes())
        .merge(feeds::routes())
        .merge(queues::routes())
        .merge(flags::routes())
        .merge(schedules::routes())
        .merge(tokens::routes())
        .merge(workers::routes())
        .get("/audit", audit::page)
}

/// Returns the handler for addresses that neither the API nor the console has.
pub fn not_found() -> MethodRouter {
    any(not_found::not_found).layer(from_fn(headers))
}

/// Content security policy: scripts, styles and images only as files of this server, nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the security headers to every response, and the link back to a refused form.
async fn headers(mut request: Request, next: Next) -> Response {
    let address = form_return::ReturnAddress::default();
    request.extensions_mut().insert(address.clone());
    let mut response = error_page::with_return_link(next.run(request).await, &address);
    let headers = response.headers_mut();
    let security = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in security {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::REFERRER_POLICY).or_insert(HeaderValue::from_static("same-origin"));
    // Pages must not stay in the cache for the next user of the same browser.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
