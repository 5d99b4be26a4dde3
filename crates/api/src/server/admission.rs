//! Admission of requests: which share of the server's resources a request uses.
//!
//! A request is anonymous until its credentials are verified. Routes that need a token take nothing before that, so
//! requests without a valid token cannot use up the shares of others.

use super::Limits;
use super::budget::{Budget, Class, Exceeded, Holder, Share, Shares, Source};
use super::connection_table::{Connection, RunningRequest};
use super::limited_body::BodyFailure;
use crate::error::ApiError;
use http::StatusCode;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidemill_core::limits::HOOK_BODY_BYTES_MAX;

/// Budgets of all requests of a server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Budgets {
    requests: SharedBudget,
    waits: SharedBudget,
    bodies: SharedBudget,
}

type SharedBudget = Arc<Mutex<Budget>>;

impl Budgets {
    /// Divides the limits. `body_bytes_max` is the size of the largest body of any route.
    pub(super) fn new(limits: &Limits, body_bytes_max: usize) -> Self {
        let shared = |shares: Shares| Arc::new(Mutex::new(Budget::new(shares)));
        let waits = Shares::divide(limits.connections);
        let people = Share { each: waits.people.all.min(limits.waits_per_token), ..waits.people };
        // A share always has room for the largest body. Webhooks may send large bodies without a token.
        let share =
            |all: usize, each: usize, least: usize| Share { all: all.max(least), each: each.max(least) };
        let (half, hook) = (limits.bodies_bytes / 2, HOOK_BODY_BYTES_MAX);
        let bodies = Shares {
            anonymous: Share { all: 2 * hook, each: hook },
            people: share(half, half / 2, body_bytes_max),
            machines: share(half, half / 4 * 3, body_bytes_max),
        };
        Self {
            requests: shared(Shares::divide(limits.requests)),
            waits: shared(Shares { people, ..waits }),
            bodies: shared(bodies),
        }
    }
}

fn locked(budget: &SharedBudget) -> MutexGuard<'_, Budget> {
    // A budget is valid after every statement, so a poisoned lock can be used.
    budget.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a part of a budget. The limit of an address counts as that of its class: many callers may share the address.
fn take(budget: &SharedBudget, class: Class, holder: Holder, amount: usize) -> Result<(), Exceeded> {
    locked(budget).take(class, holder, amount).map_err(|exceeded| match class {
        Class::Anonymous => Exceeded::Class,
        Class::Person | Class::Machine => exceeded,
    })
}

/// Resource of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Requests,
    Waits,
    Bodies,
}

impl Resource {
    /// Labels of refusals in the metrics: for a class, and for one token.
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Requests => ("requests", "requests_of_one_token"),
            Self::Waits => ("waits", "waits_of_one_token"),
            Self::Bodies => ("bodies", "bodies_of_one_token"),
        }
    }
}

/// Part of a budget; given back on drop.
struct Permit {
    budget: SharedBudget,
    class: Class,
    holder: Holder,
    amount: usize,
}

impl Permit {
    fn take(
        budget: &SharedBudget,
        (class, holder): (Class, Holder),
        amount: usize,
    ) -> Result<Self, Exceeded> {
        take(budget, class, holder, amount)?;
        Ok(Self { budget: budget.clone(), class, holder, amount })
    }

    fn grow(&mut self, amount: usize) -> Result<(), Exceeded> {
        take(&self.budget, self.class, self.holder, amount)?;
        self.amount += amount;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        locked(&self.budget).give_back(self.class, self.holder, self.amount);
    }
}

/// Whether a request counts as executing or as waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Short,
    /// A long poll or a live stream. It counts until its response is complete.
    Wait,
}

/// Resources of one request, shared by its layers, its body and its response. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admission {
    inner: Arc<Inner>,
}

struct Inner {
    budgets: Budgets,
    kind: RequestKind,
    connection: Option<Arc<Connection>>,
    _running: Option<RunningRequest>,
    state: Mutex<State>,
    failure: OnceLock<BodyFailure>,
}

struct State {
    account: (Class, Holder),
    permit: Option<Permit>,
    body: Option<Permit>,
    is_body_unread: bool,
}

impl Admission {
    pub(super) fn new(
        budgets: Budgets,
        kind: RequestKind,
        source: Source,
        connection: Option<Arc<Connection>>,
    ) -> Self {
        let account = (Class::Anonymous, Holder::Source(source));
        let state = State { account, permit: None, body: None, is_body_unread: false };
        let running = connection.as_ref().map(Connection::begin_request);
        let inner = Inner {
            budgets,
            kind,
            connection,
            _running: running,
            state: Mutex::new(state),
            failure: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request of a public route.
    pub(super) fn admit_anonymous(&self) -> Result<(), ApiError> {
        let mut state = self.state();
        self.take_permit(&mut state)
    }

    /// Admits a request whose credentials are valid. The request and its connection count for this holder from now on.
    pub(crate) fn authenticate(&self, class: Class, holder: Holder) -> Result<(), ApiError> {
        if let Some(connection) = &self.inner.connection {
            connection.authenticate(class, holder);
        }
        let mut state = self.state();
        if state.account == (class, holder) && state.permit.is_some() {
            return Ok(());
        }
        state.account = (class, holder);
        self.take_permit(&mut state)
    }

    fn take_permit(&self, state: &mut State) -> Result<(), ApiError> {
        let (budget, resource) = match self.inner.kind {
            RequestKind::Short => (&self.inner.budgets.requests, Resource::Requests),
            RequestKind::Wait => (&self.inner.budgets.waits, Resource::Waits),
        };
        state.permit = None;
        let permit =
            Permit::take(budget, state.account, 1).map_err(|exceeded| refusal(exceeded, resource))?;
        state.permit = Some(permit);
        Ok(())
    }

    /// Takes memory for more of the body.
    pub(super) fn take_body(&self, bytes: usize) -> Result<(), Exceeded> {
        let mut state = self.state();
        if let Some(body) = &mut state.body {
            return body.grow(bytes);
        }
        state.body = Some(Permit::take(&self.inner.budgets.bodies, state.account, bytes)?);
        Ok(())
    }

    /// Records why the body could not be read.
    pub(super) fn fail_body(&self, failure: BodyFailure) {
        let _ = self.inner.failure.set(failure);
    }

    pub(super) fn body_failure(&self) -> Option<BodyFailure> {
        self.inner.failure.get().copied()
    }

    /// Records that the rest of the body was not read.
    pub(super) fn leave_body_unread(&self) {
        self.state().is_body_unread = true;
    }

    /// Whether the connection must be closed, because an anonymous caller's body is still arriving.
    pub(super) fn must_close(&self) -> bool {
        let state = self.state();
        state.is_body_unread && state.account.0 == Class::Anonymous
    }

    /// Gives back what the request does not need after its handler has responded.
    pub(super) fn end_handler(&self) {
        let mut state = self.state();
        state.body = None;
        match self.inner.kind {
            RequestKind::Short => state.permit = None,
            RequestKind::Wait => {}
        }
    }
}

/// Error for a request beyond a limit.
pub(super) fn refusal(exceeded: Exceeded, resource: Resource) -> ApiError {
    let (all, each) = resource.labels();
    match exceeded {
        Exceeded::Class => {
            metrics::counter!("tidemill_http_refused_total", "why" => all).increment(1);
            let message = "the server is overloaded; try again";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(1)
        }
        Exceeded::Holder => {
            metrics::counter!("tidemill_http_refused_total", "why" => each).increment(1);
            let message = "this token has too many requests at the same time; try again";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message).retry_after(1)
        }
    }
}
