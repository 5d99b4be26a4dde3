//! Authentication of callers, and authorization of their requests.
//!
//! A caller sends a token in a header, or the cookie of a session that was opened with a token. The token determines
//! the caller's role and the projects that it sees. A local server has one token, and its caller may do everything.
//! Privileged changes are written to the audit log in the same transaction.

mod audit_trail;
pub(crate) mod csrf;
mod identify;
mod local;
mod lookup_queue;

pub(crate) use audit_trail::{RefusalLimiter, audit_entry};
pub use identify::{Peer, SESSION_COOKIE, SignInResult, identify, sign_in};
pub(crate) use identify::{SIGN_IN_PATH, sign_out, source};
pub use local::LocalAccess;
pub(crate) use lookup_queue::LookupQueue;

use crate::app::App;
use crate::endpoint::Route;
use crate::error::ApiError;
use audit_trail::{AuditTrail, ReportTrail};
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_core::access::{Role, Secret, Token};
use tidemill_core::project::LIST_PROJECTS;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::Run;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::Engine;
use tidemill_store::{Error, RefusalCode};
use tower::ServiceExt as _;
use tracing::Instrument as _;
use uuid::Uuid;

/// Authentication mode of a server.
#[derive(Debug, Clone)]
pub enum Access {
    /// No authentication: every caller is an admin. For callers within the same process only: commands on the database,
    /// and the agent of `tidemill up`.
    Open {
        /// Caller name for the audit log.
        name: String,
    },
    /// Every request is from this caller. Used by an in-process server that acts for a known user.
    Fixed(Caller),
    /// A token or a session cookie is required.
    Tokens,
    /// The server belongs to one user of this machine and requires that user's local token or session.
    Local(Arc<LocalAccess>),
}

impl Access {
    /// Returns the author of definitions that come through this server. On a local server and in-process, the caller
    /// is the operator; a token makes its holder a member of a project at most.
    pub(crate) const fn author(&self) -> DefinedBy {
        match self {
            Self::Open { .. } | Self::Local(_) => DefinedBy::Operator,
            Self::Fixed(_) | Self::Tokens => DefinedBy::Project,
        }
    }
}

/// Creates the first admin token if there is no admin token yet. The secret cannot be shown again later.
pub async fn first_admin(engine: &Engine) -> Result<Option<(Token, Secret)>, Error> {
    engine.first_admin().await
}

/// Credentials and origin of a request.
#[derive(Debug, Clone, Default)]
pub struct AuthContext {
    pub token_id: Option<Uuid>,
    /// Hash of the token or session secret.
    pub(crate) hash: Option<String>,
    /// The browser session, if the request came with its cookie.
    pub session: Option<BrowserSession>,
    /// IP address of the client, if known.
    pub source: Option<IpAddr>,
}

/// The session of a signed-in browser.
#[derive(Debug, Clone)]
pub struct BrowserSession {
    /// Value of the session cookie.
    pub(crate) secret: Secret,
    /// CSRF token that every form and script request must contain.
    pub csrf: String,
    pub expires_at: Timestamp,
}

impl<S: Sync> FromRequestParts<S> for AuthContext {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| ApiError::internal("route without access guard"))
    }
}

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name for the audit log.
    pub name: String,
    pub role: Role,
    /// The projects that the caller sees.
    pub projects: ProjectSet,
}

impl Caller {
    /// Whether the caller may see objects of a project.
    pub fn can_see(&self, project: &str) -> bool {
        self.projects.contains(project)
    }

    /// Whether the caller may see objects of every project and of the whole installation.
    pub fn sees_all_projects(&self) -> bool {
        self.projects.is_all()
    }

    /// Returns the project that a list must be restricted to: the caller's own, or the requested one.
    ///
    /// For another project than the caller's own, the error is the same as for a project that does not exist. Lists
    /// are for people, whose tokens have one project or all: a caller of several projects is refused.
    pub fn narrow_project(&self, requested: Option<String>) -> Result<Option<String>, ApiError> {
        match (&self.projects, requested) {
            (ProjectSet::All, requested) => Ok(requested),
            (ProjectSet::Only(_), Some(requested)) if self.can_see(&requested) => Ok(Some(requested)),
            (ProjectSet::Only(_), Some(requested)) => Err(invisible_project(&requested)),
            (ProjectSet::Only(_), None) => match self.projects.single() {
                Some(own) => Ok(Some(own.to_owned())),
                None => Err(several_projects_error()),
            },
        }
    }

    /// Returns the project that every list for this caller is restricted to; `None` for all projects.
    pub fn own_project(&self) -> Result<Option<String>, ApiError> {
        self.narrow_project(None)
    }

    /// Returns a run that the caller may see. Another project's run is reported as unknown.
    pub async fn run(&self, app: &App, run: &RunId) -> Result<Run, ApiError> {
        let found = app.engine().run(run).await?;
        if self.can_see(&found.project_id) { Ok(found) } else { Err(unknown_run(run)) }
    }

    /// Checks that the caller may see a run. Needs no query for callers that see every project.
    pub async fn check_run_access(&self, app: &App, run: &RunId) -> Result<(), ApiError> {
        if !self.sees_all_projects() {
            self.run(app, run).await?;
        }
        Ok(())
    }
}

/// Error for a list that can be restricted to one project only.
fn several_projects_error() -> ApiError {
    let message = "a token of several projects is not allowed to do this";
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).hint("use a token of one project")
}

/// Error for an unknown project, with the hint how to create it.
pub(crate) fn unknown_project(project: &str) -> ApiError {
    Error::unknown_project(project, None).into()
}

/// Error for a project that the caller cannot see. It must not reveal whether the project exists.
pub(crate) fn invisible_project(project: &str) -> ApiError {
    unknown_project(project).hint(LIST_PROJECTS)
}

pub(crate) fn unknown_run(run: &RunId) -> ApiError {
    Error::refused(RefusalCode::UnknownRun, format!("run `{run}` does not exist")).into()
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| ApiError::internal("route without access guard"))
    }
}

/// Middleware that authenticates and authorizes a request, and audits a privileged one.
pub(crate) async fn guard(
    State(route): State<Route>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut parts, mut body) = request.into_parts();
    let (caller, auth) = identify(&route.app, &parts).await?;
    let audit = AuditTrail::start(&route, &mut parts, &caller, &auth).await;
    let report = ReportTrail::start(&route, &parts, &caller, &auth);
    let mut admitted = route.permission.check(&caller);
    if admitted.is_ok() && csrf::is_mutation(&parts.method) {
        match csrf::check_token(&parts, body, &auth).await {
            Ok(checked) => body = checked,
            Err(error) => (admitted, body) = (Err(error), Body::empty()),
        }
    }
    if let Err(error) = admitted {
        if let Some(audit) = audit {
            audit.finish(error.status()).await;
        }
        if let Some(report) = report {
            report.finish(error.status()).await;
        }
        return Err(error);
    }
    parts.extensions.insert(caller);
    parts.extensions.insert(auth);
    let request = Request::from_parts(parts, body);
    let Some(audit) = audit else {
        let response = next.run(request).await;
        if let Some(report) = report {
            report.finish(response.status()).await;
        }
        return Ok(response);
    };
    // The state of the handler is the app of this call, so no handler can forget the audit entry.
    let handler = route.handler.with_state::<()>(route.app.for_call(audit.entry()));
    // In a task of its own: if the client disconnects, the audit entry is written nevertheless.
    let work = async move {
        audit.find_project().await;
        let response = match handler.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        audit.finish(response.status()).await;
        response
    };
    match tokio::spawn(work.in_current_span()).await {
        Ok(response) => Ok(response),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ApiError::internal("request task was cancelled")),
        },
    }
}
