//! A route with all that is to be known about it.

use crate::access::{self, Caller};
use crate::answer::Fail;
use crate::app::App;
use crate::live;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{Method, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use tidemill_core::access::Role;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Whoever looks: viewers, operators and admins.
    Look,
    /// Whoever looks, and workers: what a worker may know of the runs it works on.
    LookOrWork,
    /// Workers, and those who may do everything.
    Work,
    /// Agents, and those who may do everything.
    Agent,
    /// Operators and admins.
    Operate,
    /// Admins alone.
    Admin,
    /// Everybody with a valid token.
    Anyone,
}

impl Allowed {
    /// The roles that it names.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Look => &[Role::Viewer, Role::Operator, Role::Admin],
            Self::LookOrWork => &[Role::Viewer, Role::Operator, Role::Worker, Role::Admin],
            Self::Work => &[Role::Worker, Role::Admin],
            Self::Agent => &[Role::Agent, Role::Admin],
            Self::Operate => &[Role::Operator, Role::Admin],
            Self::Admin => &[Role::Admin],
            Self::Anyone => Role::ALL,
        }
    }

    /// Whether it is for people: what they change goes on record, and what workers and agents report
    /// does not.
    pub(crate) const fn is_for_people(self) -> bool {
        match self {
            Self::Look | Self::LookOrWork | Self::Operate | Self::Admin | Self::Anyone => true,
            Self::Work | Self::Agent => false,
        }
    }

    pub(crate) fn check(self, caller: &Caller) -> Result<(), Fail> {
        if self.roles().contains(&caller.role) { Ok(()) } else { Err(Fail::forbidden(caller, self)) }
    }
}

/// What the guard of a route knows of it.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) app: App,
    pub(crate) allowed: Allowed,
    pub(crate) path: &'static str,
    /// What it answers when it does what was asked.
    pub(crate) done: StatusCode,
}

/// How a type describes itself.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers with a status.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) says: &'static str,
    pub(crate) schema: Option<Describe>,
    pub(crate) media: &'static str,
}

/// A route with all that is to be known about it.
pub struct Endpoint {
    /// Its method.
    pub method: Method,
    /// Its path, with its parameters in braces.
    pub path: &'static str,
    /// Who may call it; `None` where no token is asked for.
    pub allowed: Option<Allowed>,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<Describe>,
    pub(crate) body: Option<Describe>,
    pub(crate) keyed: bool,
    /// Whether it may wait for something to happen before it answers.
    pub(crate) waits: bool,
    /// Bytes of its body, where they may be more than usual.
    pub(crate) body_bytes: Option<usize>,
    pub(crate) answers: Vec<Answer>,
    handler: MethodRouter<App>,
}

impl Endpoint {
    /// A route: who may call it, and what does the work.
    pub fn new<H, T>(method: Method, path: &'static str, allowed: Allowed, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        Self {
            method,
            path,
            allowed: Some(allowed),
            tag: "",
            summary: "",
            query: None,
            body: None,
            keyed: false,
            waits: false,
            body_bytes: None,
            answers: Vec::new(),
            handler: on(filter, handler),
        }
    }

    /// The same for everybody, without a token.
    #[must_use]
    pub fn open(mut self) -> Self {
        self.allowed = None;
        self
    }

    /// The part of the product it belongs to, and what it does, in a few words.
    #[must_use]
    pub fn says(mut self, tag: &'static str, summary: &'static str) -> Self {
        (self.tag, self.summary) = (tag, summary);
        self
    }

    /// What it takes in the query.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// What it takes in the body.
    #[must_use]
    pub fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// It takes an `Idempotency-Key`.
    #[must_use]
    pub fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// It may wait for something to happen before it answers: the server gives it longer, and counts it apart.
    #[must_use]
    pub fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Its body may be larger than usual, up to so many bytes.
    #[must_use]
    pub fn takes(mut self, body_bytes: usize) -> Self {
        self.body_bytes = Some(body_bytes);
        self
    }

    /// What it answers with a status.
    #[must_use]
    pub fn answers<T: JsonSchema>(mut self, status: u16, says: &'static str) -> Self {
        let schema: Describe = SchemaGenerator::subschema_for::<T>;
        self.answers.push(Answer { status, says, schema: Some(schema), media: "application/json" });
        self
    }

    /// A status that says all.
    #[must_use]
    pub fn empty(mut self, status: u16, says: &'static str) -> Self {
        self.answers.push(Answer { status, says, schema: None, media: "application/json" });
        self
    }

    /// What it answers in another form than JSON.
    #[must_use]
    pub fn text(mut self, status: u16, says: &'static str, media: &'static str) -> Self {
        self.answers.push(Answer { status, says, schema: None, media });
        self
    }

    /// Puts the route behind its guard.
    pub(crate) fn mount(self, router: Router<App>, app: &App) -> Router<App> {
        let first = self.answers.first().and_then(|answer| StatusCode::from_u16(answer.status).ok());
        let done = first.unwrap_or(StatusCode::OK);
        let handler = if self.method == Method::GET {
            self.handler
        } else {
            self.handler.layer(axum::middleware::from_fn_with_state(app.clone(), live::hint))
        };
        let handler = match self.body_bytes {
            Some(bytes) => handler.layer(DefaultBodyLimit::max(bytes)),
            None => handler,
        };
        let handler = match self.allowed {
            Some(allowed) => {
                let route = Route { app: app.clone(), allowed, path: self.path, done };
                handler.layer(axum::middleware::from_fn_with_state(route, access::guard))
            }
            None => handler,
        };
        router.route(self.path, handler)
    }
}
