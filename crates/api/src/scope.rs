//! What a caller of one project sees of feeds, syncs, rules and queues. What it does not see reads as if it did not
//! exist, word for word.
//!
//! A feed belongs to a project, and with it its syncs, its rejected rows, its gaps, and the messages of its group in
//! the queues. A rule belongs to the project of the feed that it names; one that names no feed is the whole
//! installation's, and only those who see every project see or change it. A lane is the whole installation's as well.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use http::StatusCode;
use serde::Serialize;
use std::collections::BTreeSet;
use std::str::FromStr;
use tidemill_core::ids::is_name;
use tidemill_core::pricing::PricingRule;
use tidemill_core::records::{FeedRecord, Sync};
use tidemill_store::{Error, RequestKey};

/// The name of a project, a feed, a schedule or a queue, as it stands in a path.
#[derive(Debug, Clone)]
pub(crate) struct Name(pub(crate) String);

impl FromStr for Name {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let problem = "a name is lower-case letters, digits and dashes, at most 128";
        if is_name(text) { Ok(Self(text.to_owned())) } else { Err(problem) }
    }
}

/// The feeds that a caller sees.
pub(crate) enum Feeds {
    /// Every one.
    All,
    /// Those of one project.
    Of(BTreeSet<String>),
}

impl Feeds {
    /// Whether a feed is among them.
    pub(crate) fn has(&self, feed: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(own) => own.contains(feed),
        }
    }

    /// Whether a rule is the business of whoever sees these feeds.
    pub(crate) fn have(&self, rule: &PricingRule) -> bool {
        match self {
            Self::All => true,
            Self::Of(own) => rule.feed.as_ref().is_some_and(|feed| own.contains(feed)),
        }
    }
}

impl Caller {
    /// The key of a request, where it carries one. Keys of different callers do not meet.
    pub(crate) fn keyed(
        &self,
        route: &'static str,
        key: Option<String>,
        body: &impl Serialize,
    ) -> Option<RequestKey> {
        let scope =
            self.project.as_ref().map_or_else(|| "all".to_owned(), |project| format!("project:{project}"));
        let body = serde_json::to_vec(body).unwrap_or_default();
        key.map(|key| RequestKey::new(scope, route, key, &body))
    }

    /// Refuses those of one project: what they ask for is the whole installation's.
    pub(crate) fn sees_all(&self) -> Result<(), Fail> {
        if self.project.is_none() {
            return Ok(());
        }
        let message = "a token of one project may not do this";
        Err(Fail::new(StatusCode::FORBIDDEN, "forbidden", message)
            .hint("it takes a token that sees every project"))
    }

    /// The feeds that they see.
    pub(crate) async fn feeds(&self, app: &App) -> Result<Feeds, Fail> {
        let Some(project) = &self.project else { return Ok(Feeds::All) };
        let feeds = app.engine().store().feeds().await?;
        let own = feeds.into_iter().filter(|feed| feed.feed.project_id == *project);
        Ok(Feeds::Of(own.map(|feed| feed.feed.feed).collect()))
    }

    /// A feed that they may see.
    pub(crate) async fn feed(&self, app: &App, feed: &str) -> Result<FeedRecord, Fail> {
        let found = app.engine().store().feed(feed.to_owned()).await?;
        if self.sees(&found.feed.project_id) { Ok(found) } else { Err(Error::unknown_feed(feed).into()) }
    }

    /// Makes sure that a feed that a list is narrowed to exists, and may be seen: an empty list would look like good
    /// news.
    pub(crate) async fn known_feed(&self, app: &App, feed: Option<&str>) -> Result<(), Fail> {
        match feed {
            Some(feed) => self.feed(app, feed).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// A sync that they may see, by its own id or that of its last attempt.
    pub(crate) async fn sync(&self, app: &App, id: &str) -> Result<Sync, Fail> {
        let found = app.engine().store().sync(id.to_owned()).await?;
        if self.project.is_none() {
            return Ok(found);
        }
        let feed = app.engine().store().feed(found.feed.clone()).await;
        if feed.is_ok_and(|feed| self.sees(&feed.feed.project_id)) {
            return Ok(found);
        }
        Err(Error::unknown_sync(id).into())
    }
}

/// What is said to a caller of one project that wants to change what every project shares.
pub(crate) fn shared(what: &str) -> Fail {
    let message = format!("a token of one project may not change {what}");
    Fail::new(StatusCode::FORBIDDEN, "forbidden", message).hint("it takes a token that sees every project")
}

/// What is said where a name belongs to something that the caller does not see. That the name is taken is all they
/// learn: names are shared by all projects.
pub(crate) fn taken(what: &str, name: &str) -> Fail {
    let message = format!("{what} `{name}` cannot be named so");
    Fail::new(StatusCode::CONFLICT, "name_taken", message).hint("use another name")
}
