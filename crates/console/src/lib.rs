//! The console: pages that show every run, live, and let people act on it.
//!
//! It has no rules of its own, and no way to the database. Each page asks the HTTP door within the same process,
//! with what the browser showed to be let in; each form is one call of a route of that door. So a page shows what
//! its reader may see and nothing else, and a button does what the same person could do over HTTP, on the same
//! record.
//!
//! Pages are whole without script. The one script swaps what has changed, while somebody looks.

mod act;
mod agents;
mod assets;
mod audit;
mod confirm;
mod door;
mod feeds;
mod figures;
mod flags;
mod fold;
mod graph;
mod job;
mod layout;
mod lost;
mod oops;
mod overview;
mod picture;
mod queues;
mod run;
mod runs;
mod schedules;
mod sign_in;
mod sync;
mod text;
mod time;
mod tokens;
mod visitor;
mod way_back;
mod words;
mod workers;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodRouter, any, get, post};
use http::{HeaderName, HeaderValue, header};
use std::sync::Arc;
use tidemill_api::App;

/// What every page works with; cheap to clone.
#[derive(Clone)]
pub(crate) struct Console {
    inner: Arc<Inner>,
}

struct Inner {
    app: App,
    door: door::Door,
    figures: figures::Figures,
    paces: sync::Paces,
    /// Made at the start of the process: a page that sees another one knows that the server was restarted.
    boot: String,
}

/// The pages of a server whose door works with this: to be put beside the routes of the door.
pub fn router(app: App) -> Router {
    let console = Console {
        inner: Arc::new(Inner {
            door: door::Door::new(&app),
            app,
            figures: figures::Figures::default(),
            paces: sync::Paces::default(),
            boot: uuid::Uuid::new_v4().simple().to_string(),
        }),
    };
    Router::new()
        .route("/", get(overview::page))
        .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/assets/{name}", get(assets::asset))
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
        .route("/audit", get(audit::page))
        .method_not_allowed_fallback(lost::wrong_method)
        .layer(from_fn(headers))
        .with_state(console)
}

/// What a server says of addresses that neither its door nor the console knows.
pub fn nowhere() -> MethodRouter {
    any(lost::nowhere).layer(from_fn(headers))
}

/// Where scripts, styles and pictures may come from: from here, as files. Nothing within a page is run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What every answer of the console says to browsers.
async fn headers(mut request: Request, next: Next) -> Response {
    let way = way_back::WayBack::default();
    request.extensions_mut().insert(way.clone());
    let mut response = oops::with_way(next.run(request).await, &way);
    let headers = response.headers_mut();
    let said = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in said {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // What was shown to somebody who signed in is not kept for whoever sits there next.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
