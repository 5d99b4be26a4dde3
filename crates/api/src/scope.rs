//! Visibility of feeds, syncs, rules and queues for callers that are limited to projects. The error for an invisible
//! object is exactly the same as for one that does not exist.
//!
//! A feed belongs to a project, and so do its syncs, rejected records, gaps and messages. A rule belongs to the project
//! of its feed. Rules without a feed and lanes belong to the whole installation: only callers that see every project
//! may see or change them.

use crate::access::Caller;
use crate::app::App;
use crate::error::ApiError;
use http::StatusCode;
use serde::Serialize;
use std::collections::BTreeSet;
use std::str::FromStr;
use tidemill_core::ids::is_name;
use tidemill_core::pricing::PricingRule;
use tidemill_core::records::{FeedRecord, Sync};
use tidemill_store::{Error, RequestKey};

/// Name of a project, feed, schedule or queue in a path.
#[derive(Debug, Clone)]
pub(crate) struct Name(pub(crate) String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = "a name consists of at most 128 lower-case letters, digits and dashes";
        if is_name(text) { Ok(Self(text.to_owned())) } else { Err(problem) }
    }
}

/// The feeds that a caller sees.
pub(crate) enum VisibleFeeds {
    All,
    /// The feeds of the caller's projects.
    OfProjects(BTreeSet<String>),
}

impl VisibleFeeds {
    pub(crate) fn contains(&self, feed: &str) -> bool {
        match self {
            Self::All => true,
            Self::OfProjects(own) => own.contains(feed),
        }
    }

    /// Whether a rule belongs to these feeds.
    pub(crate) fn contains_rule(&self, rule: &PricingRule) -> bool {
        match self {
            Self::All => true,
            Self::OfProjects(own) => rule.feed.as_ref().is_some_and(|feed| own.contains(feed)),
        }
    }
}

impl Caller {
    /// Builds the idempotency key of a request. Keys of different projects are separate.
    pub(crate) fn request_key(
        &self,
        route: &'static str,
        key: Option<String>,
        body: &impl Serialize,
    ) -> Option<RequestKey> {
        let scope = self
            .projects
            .names()
            .map_or_else(|| "all".to_owned(), |own| format!("project:{}", own.join(",")));
        let body = serde_json::to_vec(body).unwrap_or_default();
        key.map(|key| RequestKey::new(scope, route, key, &body))
    }

    /// Refuses a caller that is limited to projects, for requests that concern the whole installation.
    pub(crate) fn require_all_projects(&self) -> Result<(), ApiError> {
        if self.sees_all_projects() {
            return Ok(());
        }
        let message = "a token that is limited to projects is not allowed to do this";
        Err(ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
            .hint("use a token that sees every project"))
    }

    /// The feeds that the caller sees.
    pub(crate) async fn feeds(&self, app: &App) -> Result<VisibleFeeds, ApiError> {
        if self.sees_all_projects() {
            return Ok(VisibleFeeds::All);
        }
        let feeds = app.engine().store().feeds().await?;
        let own = feeds.into_iter().filter(|feed| self.can_see(&feed.feed.project_id));
        Ok(VisibleFeeds::OfProjects(own.map(|feed| feed.feed.feed).collect()))
    }

    /// Returns a feed that the caller may see.
    pub(crate) async fn feed(&self, app: &App, feed: &str) -> Result<FeedRecord, ApiError> {
        let found = app.engine().store().feed(feed.to_owned()).await?;
        if self.can_see(&found.feed.project_id) { Ok(found) } else { Err(Error::unknown_feed(feed).into()) }
    }

    /// Checks that the feed of a list filter exists and is visible. Otherwise a typo would look like an empty list.
    pub(crate) async fn check_feed(&self, app: &App, feed: Option<&str>) -> Result<(), ApiError> {
        match feed {
            Some(feed) => self.feed(app, feed).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns a sync that the caller may see, by its own id or the id of its last run.
    pub(crate) async fn sync(&self, app: &App, id: &str) -> Result<Sync, ApiError> {
        let found = app.engine().store().sync(id.to_owned()).await?;
        if self.sees_all_projects() {
            return Ok(found);
        }
        let feed = app.engine().store().feed(found.feed.clone()).await;
        if feed.is_ok_and(|feed| self.can_see(&feed.feed.project_id)) {
            return Ok(found);
        }
        Err(Error::unknown_sync(id).into())
    }
}

/// Error for a caller that is limited to projects and tries to change a shared object.
pub(crate) fn shared_object_error(what: &str) -> ApiError {
    let message = format!("a token that is limited to projects is not allowed to change {what}");
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).hint("use a token that sees every project")
}

/// Error for a name that is used by an object of another project. It only reveals that the name is in use, which is
/// unavoidable because all projects share the names.
pub(crate) fn name_taken_error(what: &str, name: &str) -> ApiError {
    let message = format!("{what} name `{name}` is not available");
    ApiError::new(StatusCode::CONFLICT, "name_taken", message).hint("use another name")
}
