//! Who is calling, and whether they may.
//!
//! A caller comes with a token in a header, or with the cookie of a session that was opened with one. What they may do
//! stands on the token; which project they see does too. Whatever they change goes on record with the change.

pub(crate) mod forgery;
mod identify;
mod throttle;
mod trail;

pub use identify::{Peer, SESSION_COOKIE, SignedIn, identify, sign_in};
pub(crate) use identify::{SIGN_IN_PATH, no_cookie};
pub(crate) use throttle::Throttle;
pub(crate) use trail::line as trail_line;

use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use std::net::IpAddr;
use tidemill_core::access::{Role, Secret, Token};
use tidemill_core::project::LIST_PROJECTS;
use tidemill_core::run::Run;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::Engine;
use tidemill_store::{Error, RefusalCode};
use tracing::Instrument as _;
use trail::Trail;
use uuid::Uuid;

/// How callers are known.
#[derive(Debug, Clone)]
pub enum Access {
    /// Whoever reaches the door may do everything: the embedded default on loopback, and commands in one process.
    Open {
        /// The name under which what they do is recorded.
        name: String,
    },
    /// Whoever reaches the door is this caller: a door within one process, made for somebody who is known.
    As(Caller),
    /// Whoever comes with a token, or signed in with one, may do what the token says.
    Tokens,
}

/// Makes the token of the first admin, where nobody may do everything yet. Its secret is to be shown once, and is lost
/// otherwise.
pub async fn first_admin(engine: &Engine) -> Result<Option<(Token, Secret)>, Error> {
    engine.first_admin().await
}

/// How a caller came.
#[derive(Debug, Clone, Default)]
pub struct Visit {
    /// The token, where one was asked for.
    pub token_id: Option<Uuid>,
    /// The hash of what they showed, where something was asked for.
    pub(crate) hash: Option<String>,
    /// The session, where they came with a cookie.
    pub session: Option<Signed>,
    /// The address that they called from, where it is known.
    pub source: Option<IpAddr>,
}

/// The session of a browser.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The value of its cookie.
    pub(crate) secret: Secret,
    /// What every form of it must carry.
    pub csrf: String,
    /// Until when it lasts.
    pub expires_at: Timestamp,
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fail> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Fail::internal("a route has no guard"))
    }
}

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name under which what they do is recorded.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// The only project that they see, if not all.
    pub project: Option<String>,
}

impl Caller {
    /// Whether they may know that things of this project exist.
    pub fn sees(&self, project: &str) -> bool {
        self.project.as_deref().is_none_or(|own| own == project)
    }

    /// The project that a list is narrowed to: the caller's own, or the one that was asked for.
    ///
    /// Somebody else's project is narrowed to nothing: it reads as one that does not exist.
    pub fn narrow(&self, asked: Option<String>) -> Result<Option<String>, Fail> {
        match (&self.project, asked) {
            (None, asked) => Ok(asked),
            (Some(own), None) => Ok(Some(own.clone())),
            (Some(own), Some(asked)) if *own == asked => Ok(Some(asked)),
            (Some(_), Some(asked)) => Err(hidden_project(&asked)),
        }
    }

    /// A run that they may see. Another project's run reads as one that does not exist.
    pub async fn run(&self, app: &App, run: &RunId) -> Result<Run, Fail> {
        let found = app.engine().run(run).await?;
        if self.sees(&found.project_id) { Ok(found) } else { Err(unknown_run(run)) }
    }

    /// Makes sure that they may see a run, without a query where they see every project.
    pub async fn may_touch(&self, app: &App, run: &RunId) -> Result<(), Fail> {
        if self.project.is_some() {
            self.run(app, run).await?;
        }
        Ok(())
    }
}

/// Refuses a project that does not exist, in the words of the store, to somebody who may create it.
pub(crate) fn unknown_project(project: &str) -> Fail {
    Error::unknown_project(project, None).into()
}

/// The same for a caller of another project, who cannot create one. The answer must not tell whether it exists.
pub(crate) fn hidden_project(project: &str) -> Fail {
    unknown_project(project).hint(LIST_PROJECTS)
}

fn unknown_run(run: &RunId) -> Fail {
    Error::refused(RefusalCode::UnknownRun, format!("run `{run}` does not exist")).into()
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fail> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Fail::internal("a route has no guard"))
    }
}

/// Lets a request pass to its route, if its caller may, and puts on record what a person changed.
pub(crate) async fn guard(
    State(route): State<Route>,
    request: Request,
    next: Next,
) -> Result<Response, Fail> {
    let (mut parts, mut body) = request.into_parts();
    let (caller, visit) = identify(&route.app, &parts).await?;
    route.allowed.check(&caller)?;
    if forgery::changes(&parts.method) {
        body = forgery::check(&parts, body, &visit).await?;
    }
    let trail = Trail::begin(&route, &mut parts, &caller, &visit).await;
    parts.extensions.insert(caller);
    parts.extensions.insert(visit);
    let request = Request::from_parts(parts, body);
    let Some(trail) = trail else { return Ok(next.run(request).await) };
    // In a task of its own: a caller that hangs up must not keep what it did off the record.
    let work = async move {
        let response = trail.around(next.run(request)).await;
        trail.end(response.status()).await;
        response
    };
    match tokio::spawn(work.in_current_span()).await {
        Ok(response) => Ok(response),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Fail::internal("a request was broken off")),
        },
    }
}
