//! Who is calling, and whether they may.

use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::Allowed;
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::run::Run;
use tidemill_store::{Error, RefusalCode};

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
            (Some(_), Some(asked)) => Err(unknown_project(&asked)),
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

/// What the store says of a project that does not exist.
pub(crate) fn unknown_project(project: &str) -> Fail {
    Error::refused(RefusalCode::UnknownProject, format!("project `{project}` does not exist")).into()
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

/// Lets a request pass to its route, if its caller may.
pub(crate) async fn guard(
    State((app, allowed)): State<(App, Allowed)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Fail> {
    let caller = match app.access() {
        Access::Open { name } => Caller { name: name.clone(), role: Role::Admin, project: None },
        Access::As(caller) => caller.clone(),
    };
    allowed.check(&caller)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}
