//! Who looks at a page, and what they may do there.

use crate::Console;
use crate::door::Door;
use crate::oops::Oops;
use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{Method, Uri};
use tidemill_api::access::{Caller, identify};
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::access::Role;
use tidemill_engine::clock::host_now;

/// The header by which our script asks for a page without its frame.
const LIVE_HEADER: &str = "x-tidemill-live";

/// Who looks at a page.
pub(crate) struct Visitor {
    /// Who they are.
    pub(crate) caller: Caller,
    /// What their forms carry, where they signed in.
    pub(crate) csrf: Option<String>,
    /// Whether they signed in, and can sign out.
    pub(crate) signed_in: bool,
    /// The door, as they see it. It changes nothing for a browser that signed in.
    pub(crate) client: Client,
    /// The time that the page is made at.
    pub(crate) now: Timestamp,
    /// The address that was asked for.
    pub(crate) uri: Uri,
    /// Whether our script asks, for what is inside the frame.
    pub(crate) live: bool,
    console: Console,
    parts: Parts,
}

impl Visitor {
    /// Whether they may call a route of the door.
    pub(crate) fn may(&self, method: Method, path: &'static str) -> bool {
        self.console.inner.door.may(&self.caller, method, path)
    }

    /// Whether they may do what operators do to runs.
    pub(crate) fn may_operate(&self) -> bool {
        self.may(Method::POST, "/v1/runs/{run}/cancel")
    }

    /// Whether they see tokens and the record of what people did.
    pub(crate) fn is_admin(&self) -> bool {
        self.caller.role == Role::Admin
    }

    /// What all pages share.
    pub(crate) fn console(&self) -> &Console {
        &self.console
    }

    /// The door for questions that travel as a change does, such as trying the rules on a stone.
    pub(crate) fn asking(&self) -> Client {
        let door: &Door = &self.console.inner.door;
        door.client_with(&self.parts, self.csrf.as_deref())
    }
}

impl FromRequestParts<Console> for Visitor {
    type Rejection = Oops;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Oops> {
        let inner = &console.inner;
        let (caller, visit) =
            identify(&inner.app, parts).await.map_err(|fail| Oops::of_fail(&fail, &parts.uri))?;
        Ok(Self {
            caller,
            csrf: visit.session.as_ref().map(|session| session.csrf.clone()),
            signed_in: visit.session.is_some(),
            client: inner.door.client(parts),
            now: inner.app.engine().clock().now().unwrap_or_else(host_now),
            uri: parts.uri.clone(),
            live: parts.headers.contains_key(LIVE_HEADER),
            console: console.clone(),
            parts: parts.clone(),
        })
    }
}
