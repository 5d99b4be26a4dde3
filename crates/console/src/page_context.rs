//! Context of a page request: the user and its permissions.

use crate::Console;
use crate::api_client::ApiClient;
use crate::error_page::ErrorPage;
use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{Method, Uri};
use tidemill_api::access::{Caller, identify};
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::access::Role;
use tidemill_engine::clock::host_now;

/// Header with which the script requests a page without its frame.
const LIVE_HEADER: &str = "x-tidemill-live";

/// Context of a page request.
pub(crate) struct PageContext {
    pub(crate) caller: Caller,
    /// CSRF token for forms, if the user signed in.
    pub(crate) csrf: Option<String>,
    /// Whether the user signed in with a token and can sign out.
    pub(crate) signed_in: bool,
    /// API client with the user's credentials, without a CSRF token.
    pub(crate) client: Client,
    pub(crate) now: Timestamp,
    pub(crate) uri: Uri,
    /// Whether the script requests the content without the frame.
    pub(crate) live: bool,
    console: Console,
    parts: Parts,
}

impl PageContext {
    /// Whether the user has the permission for an API route.
    pub(crate) fn may(&self, method: Method, path: &'static str) -> bool {
        self.console.inner.api.may(&self.caller, method, path)
    }

    /// Whether the user may cancel and retry runs.
    pub(crate) fn may_operate(&self) -> bool {
        self.may(Method::POST, "/v1/runs/{run}/cancel")
    }

    /// Whether the user may see tokens and the audit log.
    pub(crate) fn is_admin(&self) -> bool {
        self.caller.role == Role::Admin
    }

    pub(crate) fn console(&self) -> &Console {
        &self.console
    }

    /// API client with a CSRF token, for queries that are POST requests, such as the rule tester.
    pub(crate) fn client_with_csrf(&self) -> Client {
        let api: &ApiClient = &self.console.inner.api;
        api.client_with(&self.parts, self.csrf.as_deref())
    }
}

impl FromRequestParts<Console> for PageContext {
    type Rejection = ErrorPage;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, ErrorPage> {
        let inner = &console.inner;
        let (caller, auth) = identify(&inner.app, parts)
            .await
            .map_err(|error| ErrorPage::from_api_error(&error, &parts.uri))?;
        Ok(Self {
            caller,
            csrf: auth.session.as_ref().map(|session| session.csrf.clone()),
            signed_in: auth.session.is_some(),
            client: inner.api.client(parts),
            now: inner.app.engine().clock().now().unwrap_or_else(host_now),
            uri: parts.uri.clone(),
            live: parts.headers.contains_key(LIVE_HEADER),
            console: console.clone(),
            parts: parts.clone(),
        })
    }
}
