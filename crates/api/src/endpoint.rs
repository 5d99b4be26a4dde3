//! Description of a route, from which the router, the access check and the OpenAPI document are built.

use crate::access::{self, Caller};
use crate::app::App;
use crate::error::ApiError;
use crate::live;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use tidemill_core::access::Role;

/// Permission that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Viewers, operators and admins.
    Read,
    /// Like `Read`, and workers: they may read the runs that they work on.
    ReadOrWork,
    Work,
    Agent,
    Operate,
    Admin,
    Anyone,
}

impl Permission {
    /// The roles that have this permission.
    pub const fn roles(self) -> &'static [Role] {
        match self {
            Self::Read => &[Role::Viewer, Role::Operator, Role::Admin],
            Self::ReadOrWork => &[Role::Viewer, Role::Operator, Role::Worker, Role::Admin],
            Self::Work => &[Role::Worker, Role::Admin],
            Self::Agent => &[Role::Agent, Role::Admin],
            Self::Operate => &[Role::Operator, Role::Admin],
            Self::Admin => &[Role::Admin],
            Self::Anyone => Role::ALL,
        }
    }

    /// Whether changes through the route are privileged. They are audited; reports of workers and agents are not.
    pub(crate) const fn is_privileged(self) -> bool {
        match self {
            Self::Read | Self::ReadOrWork | Self::Operate | Self::Admin | Self::Anyone => true,
            Self::Work | Self::Agent => false,
        }
    }

    /// Whether the route is for the reports of workers and agents.
    pub(crate) const fn is_report(self) -> bool {
        !self.is_privileged()
    }

    pub(crate) fn check(self, caller: &Caller) -> Result<(), ApiError> {
        if self.roles().contains(&caller.role) { Ok(()) } else { Err(ApiError::forbidden(caller, self)) }
    }
}

/// Facts about a route that its guard needs.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) app: App,
    pub(crate) permission: Permission,
    pub(crate) path: &'static str,
    /// Handler that gets its state per request: an audited request has an app of its own.
    pub(crate) handler: MethodRouter<App>,
}

/// Function that returns the JSON schema of a type.
pub(crate) type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Documented response of a route.
pub(crate) struct ResponseDoc {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) schema: Option<SchemaFn>,
    pub(crate) media: &'static str,
}

/// A route with its handler, its permission and its documentation.
pub struct Endpoint {
    pub method: Method,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// Required permission; `None` if no token is needed.
    pub permission: Option<Permission>,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: Option<SchemaFn>,
    pub(crate) body: Option<SchemaFn>,
    pub(crate) keyed: bool,
    /// Whether the route may wait before it responds (long poll).
    pub(crate) is_long_poll: bool,
    /// Body size limit, if it differs from the server's default.
    pub(crate) body_limit: Option<usize>,
    pub(crate) responses: Vec<ResponseDoc>,
    handler: MethodRouter<App>,
}

impl Endpoint {
    /// Creates a route with its handler.
    pub fn new<H, T>(method: Method, path: &'static str, permission: Permission, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        Self {
            method,
            path,
            permission: Some(permission),
            tag: "",
            summary: "",
            query: None,
            body: None,
            keyed: false,
            is_long_poll: false,
            body_limit: None,
            responses: Vec::new(),
            handler: on(filter, handler),
        }
    }

    /// Makes the route public: no token is needed.
    #[must_use]
    pub fn public(mut self) -> Self {
        self.permission = None;
        self
    }

    /// Sets the tag and the summary for the OpenAPI document.
    #[must_use]
    pub fn describe(mut self, tag: &'static str, summary: &'static str) -> Self {
        (self.tag, self.summary) = (tag, summary);
        self
    }

    /// Documents the query parameters.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Documents the JSON body.
    #[must_use]
    pub fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Documents that the route supports an `Idempotency-Key`.
    #[must_use]
    pub fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// Marks a long poll: it gets a longer timeout and does not count towards the limit of concurrent requests.
    #[must_use]
    pub fn long_poll(mut self) -> Self {
        self.is_long_poll = true;
        self
    }

    /// Raises the body size limit.
    #[must_use]
    pub fn body_limit(mut self, body_limit: usize) -> Self {
        self.body_limit = Some(body_limit);
        self
    }

    /// Documents a JSON response.
    #[must_use]
    pub fn responds<T: JsonSchema>(mut self, status: u16, description: &'static str) -> Self {
        let schema: SchemaFn = SchemaGenerator::subschema_for::<T>;
        self.responses.push(ResponseDoc {
            status,
            description,
            schema: Some(schema),
            media: "application/json",
        });
        self
    }

    /// Documents a response without a body.
    #[must_use]
    pub fn responds_empty(mut self, status: u16, description: &'static str) -> Self {
        self.responses.push(ResponseDoc { status, description, schema: None, media: "application/json" });
        self
    }

    /// Documents a response with another media type than JSON.
    #[must_use]
    pub fn responds_text(mut self, status: u16, description: &'static str, media: &'static str) -> Self {
        self.responses.push(ResponseDoc { status, description, schema: None, media });
        self
    }

    /// Adds the route to a router, behind its guard.
    pub(crate) fn mount(self, router: Router<App>, app: &App) -> Router<App> {
        let handler = if self.method == Method::GET {
            self.handler
        } else {
            self.handler.layer(axum::middleware::from_fn_with_state(app.clone(), live::wake_hub))
        };
        let handler = match self.body_limit {
            Some(bytes) => handler.layer(DefaultBodyLimit::max(bytes)),
            None => handler,
        };
        let handler = match self.permission {
            Some(permission) => {
                let (app, inner) = (app.clone(), handler.clone());
                let route = Route { app, permission, path: self.path, handler: inner };
                handler.layer(axum::middleware::from_fn_with_state(route, access::guard))
            }
            None => handler,
        };
        router.route(self.path, handler)
    }
}
