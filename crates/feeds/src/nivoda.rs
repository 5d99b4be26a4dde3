//! The Nivoda feed: GraphQL over HTTP, with a login.

mod client;
mod document;
mod envelope;
mod fancy;
mod map;
mod page;
mod text;
mod tls;
mod token;

use crate::feed::{Answer, Counted, Feed};
use crate::{FeedError, MapFault, Secret, Tuning};
use client::{Client, Fault, Nature, Reply};
use document::{CountVariables, Filter, LoginVariables, PageVariables, Request, Settings};
use map::Mapper;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{Cents, FeedPage, FeedQuery};
use tidemill_core::limits::READ_BYTES_MAX;
use token::{Token, Tokens};

/// Bytes of an answer around its records.
const WRAPPING_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request. Ids are the only part of it that can grow.
const REQUEST_BYTES_MAX: usize = 500 * 1024;

/// One account at one address.
pub(crate) struct Nivoda {
    client: Client,
    username: String,
    password: Secret,
    tokens: Tokens<Fault>,
    settings: Settings,
    /// The same for what is no longer offered; `None` where it is not asked for.
    withdrawn: Option<Settings>,
    mapper: Mapper,
}

#[derive(Deserialize)]
struct LoginData {
    authenticate: Option<Authenticate>,
}

#[derive(Deserialize)]
struct Authenticate {
    username_and_password: Option<Login>,
}

#[derive(Deserialize)]
struct Login {
    token: Option<String>,
}

#[derive(Deserialize)]
struct CountData {
    #[serde(rename = "as")]
    account: Option<CountAccount>,
}

#[derive(Deserialize)]
struct CountAccount {
    diamonds_by_query_count: Option<u64>,
}

impl Nivoda {
    pub(crate) fn new(
        feed: &tidemill_core::feed::Feed,
        password: Option<Secret>,
        tuning: Tuning,
    ) -> Result<Self, FeedError> {
        let bad_endpoint = |reason: String| FeedError::BadEndpoint { feed: feed.feed.clone(), reason };
        let url = address(&feed.endpoint).map_err(bad_endpoint)?;
        let settings = Settings::read(&feed.settings)
            .map_err(|reason| FeedError::BadSettings { feed: feed.feed.clone(), reason })?;
        let tls = tls::config(tls::web()).map_err(bad_endpoint)?;
        let client = Client::new(url, f64::from(feed.rate), tls, tuning).map_err(bad_endpoint)?;
        let no = |what: &str| Fault::new(Nature::Account, format!("needs a {what}")).error(&client.at);
        let username = feed.username.clone().ok_or_else(|| no("user name"))?;
        let password = password.ok_or_else(|| no("password"))?;
        let mapper = Mapper { lab_grown: settings.labgrown };
        let withdrawn = settings.of_withdrawn();
        Ok(Self { client, username, password, tokens: Tokens::new(), settings, withdrawn, mapper })
    }

    /// Asks with the token, and once more with a new one if the token is refused.
    async fn ask<T>(
        &self,
        bytes_max: usize,
        body: impl Fn(&str) -> Result<Vec<u8>, Fault>,
        read: impl Fn(&Reply) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut is_second = false;
        loop {
            let token = self.tokens.get(|| self.login()).await?;
            let secret = token.secret.expose();
            match self.client.ask(&body(secret)?, bytes_max, &read).await {
                Err(fault) if fault.nature == Nature::Account && !is_second => {
                    tracing::debug!(feed.at = %self.client.at, "the token is refused; logging in again");
                    self.tokens.forget(&token);
                    is_second = true;
                }
                Err(fault) => return Err(hide(fault, secret)),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn login(&self) -> Result<Token, Fault> {
        let variables = LoginVariables { username: &self.username, password: self.password.expose() };
        let body = encode(&Request { query: document::LOGIN, variables })?;
        let asked_at = tokio::time::Instant::now();
        let bytes_max = self.client.tuning.answer_bytes_max;
        let secret = self.client.ask(&body, bytes_max, read_token).await;
        let secret = secret.map_err(|fault| hide(fault, self.password.expose()))?;
        Ok(Token::new(secret, asked_at, &self.client.tuning))
    }

    async fn count_of(&self, query: &FeedQuery) -> Result<Counted, Fault> {
        let filter = Filter::of(&self.settings, query)?;
        let body = |token: &str| {
            encode(&Request { query: document::COUNT, variables: CountVariables { token, query: &filter } })
        };
        self.ask(self.client.tuning.answer_bytes_max, body, read_count).await
    }

    async fn page_of(&self, filter: &Filter<'_>, offset: u64, limit: u32) -> Result<FeedPage, Fault> {
        if limit == 0 || limit > document::PAGE_MAX {
            let reason = format!("a page has 1 to {} records, not {limit}", document::PAGE_MAX);
            return Err(Fault::query(reason));
        }
        if i32::try_from(offset).is_err() {
            return Err(Fault::query(format!("the source cannot count to record {offset}")));
        }
        let item_bytes_max = self.client.tuning.item_bytes_max;
        let bytes_max = item_bytes_max.max(READ_BYTES_MAX) + WRAPPING_BYTES_MAX;
        let mut limit = limit;
        loop {
            let body = |token: &str| {
                let variables = PageVariables { token, query: filter, offset, limit };
                encode(&Request { query: document::PAGE, variables })
            };
            let read = |reply: &Reply| page::read(&reply.body, limit as usize, item_bytes_max);
            match self.ask(bytes_max, body, read).await {
                // A page may be short, so fewer records are asked for. One alone does not meet the page before.
                Err(fault) if fault.nature == Nature::TooLarge && limit > 2 => {
                    tracing::debug!(feed.at = %self.client.at, offset, limit, "the page is too large");
                    limit = (limit / 2).max(2);
                }
                answer => return answer,
            }
        }
    }

    /// Those of these ids that the source offers. A page may be short, so that a stone which is missing from one answer
    /// is asked for again: only an answer that brings none of those says that they are gone.
    async fn find(&self, ids: &[String]) -> Result<Vec<String>, Fault> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(document::PAGE_MAX as usize) {
            let mut missing = ids.to_vec();
            // Each round but the last finds one at the least.
            while !missing.is_empty() {
                let some = self.find_some(&missing).await?;
                if some.is_empty() {
                    break;
                }
                missing.retain(|id| !some.contains(id));
                found.extend(some);
            }
        }
        Ok(found)
    }

    /// Those of a page's ids that one answer brings. A record without an id may be any of them, so that none counts as
    /// gone.
    async fn find_some(&self, ids: &[String]) -> Result<HashSet<String>, Fault> {
        let filter = Filter::of_ids(&self.settings, ids);
        let page = self.page_of(&filter, 0, document::PAGE_MAX).await?;
        if page.bad.iter().any(|bad| bad.stone_id.is_none()) {
            return Ok(ids.iter().cloned().collect());
        }
        let bad = page.bad.into_iter().filter_map(|bad| bad.stone_id);
        // A source that ignores the filter answers with any stones; those were not asked for.
        Ok(page
            .items
            .into_iter()
            .map(|item| item.stone_id)
            .chain(bad)
            .filter(|id| ids.contains(id))
            .collect())
    }

    fn answer<'a, T: 'a>(
        &'a self,
        question: impl Future<Output = Result<T, Fault>> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move { question.await.map_err(|fault| fault.error(&self.client.at)) })
    }
}

impl Feed for Nivoda {
    fn page_limit(&self) -> u32 {
        document::PAGE_MAX
    }

    fn granularity(&self) -> Cents {
        document::GRANULARITY
    }

    fn mapper_version(&self) -> i32 {
        self.mapper.version()
    }

    fn count<'a>(&'a self, query: &'a FeedQuery) -> Answer<'a, Counted> {
        self.answer(self.count_of(query))
    }

    fn page<'a>(&'a self, query: &'a FeedQuery, offset: u64, limit: u32) -> Answer<'a, FeedPage> {
        self.answer(async move {
            let filter = Filter::of(&self.settings, query)?;
            self.page_of(&filter, offset, limit).await
        })
    }

    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<Answer<'a, Vec<String>>> {
        Some(self.answer(self.find(ids)))
    }

    fn withdrawn(&self, since: Timestamp, offset: u64, limit: u32) -> Option<Answer<'_, FeedPage>> {
        let settings = self.withdrawn.as_ref()?;
        Some(
            self.answer(
                async move { self.page_of(&Filter::of_withdrawn(settings, since), offset, limit).await },
            ),
        )
    }

    fn map(&self, payload: &str) -> Result<Diamond, MapFault> {
        self.mapper.map(payload)
    }

    fn set_rate(&self, per_second: f64) {
        self.client.bucket.set_rate(per_second);
    }
}

/// The address of a feed, if it can be spoken to.
fn address(endpoint: &str) -> Result<reqwest::Url, String> {
    // The text is not repeated: somebody may have put a password into it.
    let url = reqwest::Url::parse(endpoint)
        .map_err(|error| format!("it is not a URL ({error}); write it as https://host/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}` is not spoken here; use https or http", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it names no host; write it as https://host/path".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "it contains an account; give the user name and the password apart from it";
        return Err(reason.to_owned());
    }
    Ok(url)
}

fn encode<V: Serialize>(request: &Request<V>) -> Result<Vec<u8>, Fault> {
    let body = serde_json::to_vec(request).map_err(|error| Fault::query(error.to_string()))?;
    if body.len() > REQUEST_BYTES_MAX {
        return Err(Fault::query(format!("it has more than {REQUEST_BYTES_MAX} bytes")));
    }
    Ok(body)
}

/// The source may repeat what it was given; nothing secret leaves in a message.
fn hide(mut fault: Fault, secret: &str) -> Fault {
    if !secret.is_empty() && fault.reason.contains(secret) {
        fault.reason = fault.reason.replace(secret, "***");
    }
    fault
}

fn read_token(reply: &Reply) -> Result<Secret, Fault> {
    let data: LoginData = envelope::open(&reply.body)?;
    let login = data.authenticate.and_then(|authenticate| authenticate.username_and_password);
    let token = login.and_then(|login| login.token).filter(|token| !token.is_empty());
    token.map(Secret::new).ok_or_else(|| Fault::new(Nature::Account, "gave no token for the account"))
}

fn read_count(reply: &Reply) -> Result<Counted, Fault> {
    let data: CountData = envelope::open(&reply.body)?;
    let count = data.account.and_then(|account| account.diamonds_by_query_count);
    let count = count.ok_or_else(|| Fault::new(Nature::Garbled, "answered a count without a number"))?;
    Ok(Counted { count, source_time: reply.date })
}
