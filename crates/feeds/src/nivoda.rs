//! The Nivoda feed: GraphQL over HTTP, with a login.

mod document;
mod fancy;
mod map;
mod page;
mod text;

use crate::feed::{Feed, FeedCount, FeedFuture, MappedRecord};
use crate::http::client::{Client, ErrorKind, Reply, RequestError, hide};
use crate::http::token::{Token, TokenCache};
use crate::http::{envelope, tls};
use crate::{Endpoint, FeedError, MapError, Network, Secret, Tuning};
use document::{CountVariables, Filter, LoginVariables, PageVariables, Request, Settings};
use map::Mapper;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use tidemill_core::Timestamp;
use tidemill_core::diamond::ALL_PRICES;
use tidemill_core::feed::{FeedPage, FeedQuery, FieldRange, FieldValue};
use tidemill_core::feed_definition::Place;
use tidemill_core::limits::READ_BYTES_MAX;

/// Largest size of a response in bytes, not counting its records.
const WRAPPING_BYTES_MAX: usize = 64 * 1024;
/// Largest size of a request in bytes. Only the list of ids makes a request grow.
const REQUEST_BYTES_MAX: usize = 500 * 1024;

/// Client of one account at one endpoint.
pub(crate) struct Nivoda {
    client: Client,
    username: String,
    password: Secret,
    tokens: TokenCache<RequestError>,
    settings: Settings,
    /// Filter settings for withdrawn stones; `None` if the settings exclude those.
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
        network: &Network,
        tuning: Tuning,
    ) -> Result<Self, FeedError> {
        let invalid_endpoint =
            |reason: String| FeedError::InvalidEndpoint { feed: feed.feed.clone(), reason };
        let url = address(&feed.endpoint).map_err(invalid_endpoint)?;
        let settings = Settings::read(&feed.settings)
            .map_err(|reason| FeedError::InvalidSettings { feed: feed.feed.clone(), reason })?;
        if let Network::Listed(hosts) = network {
            let endpoint = endpoint_of_url(&url).map_err(invalid_endpoint)?;
            let checked = hosts.check(&endpoint.host, endpoint.port);
            checked.map_err(|reason| FeedError::out_of_reach(feed, reason))?;
        }
        let tls = tls::config(tls::roots(&tuning.authorities)).map_err(invalid_endpoint)?;
        let client =
            Client::new(url, f64::from(feed.rate), tls, network, tuning).map_err(invalid_endpoint)?;
        let missing = |what: &str| {
            RequestError::new(ErrorKind::Unauthorized, format!("requires a {what}"))
                .into_feed_error(&client.at)
        };
        let username = feed.username.clone().ok_or_else(|| missing("user name"))?;
        let password = password.ok_or_else(|| missing("password"))?;
        let mapper = Mapper { lab_grown: settings.labgrown };
        let withdrawn = settings.of_withdrawn();
        Ok(Self { client, username, password, tokens: TokenCache::new(), settings, withdrawn, mapper })
    }

    /// Sends a request with the current token, and once more with a new token if the first is refused.
    async fn send<T>(
        &self,
        bytes_max: usize,
        body: impl Fn(&str) -> Result<Vec<u8>, RequestError>,
        read: impl Fn(&Reply) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let mut is_second = false;
        loop {
            let token = self.tokens.get(|| self.login()).await?;
            let secret = token.secret.expose();
            match self.client.send(&body(secret)?, bytes_max, &read).await {
                Err(error) if error.kind == ErrorKind::Unauthorized && !is_second => {
                    tracing::debug!(feed.at = %self.client.at, "token refused; logging in again");
                    self.tokens.forget(&token);
                    is_second = true;
                }
                Err(error) => return Err(hide(error, secret)),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn login(&self) -> Result<Token, RequestError> {
        let variables = LoginVariables { username: &self.username, password: self.password.expose() };
        let body = encode(&Request { query: document::LOGIN, variables })?;
        let asked_at = tokio::time::Instant::now();
        let bytes_max = self.client.tuning.answer_bytes_max;
        let secret = self.client.send(&body, bytes_max, read_token).await;
        let secret = secret.map_err(|error| hide(error, self.password.expose()))?;
        Ok(Token::new(secret, asked_at, &self.client.tuning))
    }

    async fn count_of(&self, query: &FeedQuery) -> Result<FeedCount, RequestError> {
        let filter = Filter::of(&self.settings, query)?;
        let body = |token: &str| {
            encode(&Request { query: document::COUNT, variables: CountVariables { token, query: &filter } })
        };
        self.send(self.client.tuning.answer_bytes_max, body, read_count).await
    }

    async fn page_of(&self, filter: &Filter<'_>, offset: u64, limit: u32) -> Result<FeedPage, RequestError> {
        if limit == 0 || limit > document::PAGE_MAX {
            let reason = format!("page size must be between 1 and {}, but is {limit}", document::PAGE_MAX);
            return Err(RequestError::query(reason));
        }
        if i32::try_from(offset).is_err() {
            return Err(RequestError::query(format!(
                "offset {offset} does not fit the feed's 32-bit offset"
            )));
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
            match self.send(bytes_max, body, read).await {
                // Short pages are allowed, so fewer records are requested. At least two: the caller checks that a
                // page overlaps the one before it.
                Err(error) if error.kind == ErrorKind::TooLarge && limit > 2 => {
                    tracing::debug!(feed.at = %self.client.at, offset, limit, "page too large, requesting less");
                    limit = (limit / 2).max(2);
                }
                answer => return answer,
            }
        }
    }

    /// Returns the subset of `ids` that the source offers. A page may be short, so ids that are missing from one
    /// answer are requested again. Ids count as gone only after an answer that contains none of them.
    async fn find(&self, ids: &[String]) -> Result<Vec<String>, RequestError> {
        let mut found = Vec::with_capacity(ids.len());
        for ids in ids.chunks(document::PAGE_MAX as usize) {
            let mut missing = ids.to_vec();
            // Each round except the last finds at least one id.
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

    /// Returns the subset of one page's `ids` that one answer contains. A record without an id could be any of them,
    /// so in that case none counts as gone.
    async fn find_some(&self, ids: &[String]) -> Result<HashSet<String>, RequestError> {
        let filter = Filter::of_ids(&self.settings, ids);
        let page = self.page_of(&filter, 0, document::PAGE_MAX).await?;
        if page.rejected.iter().any(|bad| bad.record_id.is_none()) {
            return Ok(ids.iter().cloned().collect());
        }
        let bad = page.rejected.into_iter().filter_map(|bad| bad.record_id);
        // A source that ignores the filter returns arbitrary stones, so other ids are dropped.
        Ok(page
            .items
            .into_iter()
            .map(|item| item.record_id)
            .chain(bad)
            .filter(|id| ids.contains(id))
            .collect())
    }

    fn answer<'a, T: 'a>(
        &'a self,
        question: impl Future<Output = Result<T, RequestError>> + Send + 'a,
    ) -> FeedFuture<'a, T> {
        Box::pin(async move { question.await.map_err(|error| error.into_feed_error(&self.client.at)) })
    }
}

impl Feed for Nivoda {
    fn page_limit(&self) -> u32 {
        document::PAGE_MAX
    }

    fn range(&self) -> FieldRange {
        ALL_PRICES
    }

    fn granularity(&self) -> FieldValue {
        document::GRANULARITY
    }

    fn mapper_version(&self) -> i32 {
        self.mapper.version()
    }

    fn count<'a>(&'a self, query: &'a FeedQuery) -> FeedFuture<'a, FeedCount> {
        self.answer(self.count_of(query))
    }

    fn page<'a>(&'a self, query: &'a FeedQuery, place: &'a Place, limit: u32) -> FeedFuture<'a, FeedPage> {
        self.answer(async move {
            let filter = Filter::of(&self.settings, query)?;
            self.page_of(&filter, place.offset, limit).await
        })
    }

    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<FeedFuture<'a, Vec<String>>> {
        Some(self.answer(self.find(ids)))
    }

    fn withdrawn(&self, since: Timestamp, offset: u64, limit: u32) -> Option<FeedFuture<'_, FeedPage>> {
        let settings = self.withdrawn.as_ref()?;
        Some(
            self.answer(
                async move { self.page_of(&Filter::of_withdrawn(settings, since), offset, limit).await },
            ),
        )
    }

    fn map(&self, payload: &str) -> Result<MappedRecord, MapError> {
        self.mapper.map(payload).map(|diamond| MappedRecord::Diamond(Box::new(diamond)))
    }

    fn set_rate(&self, per_second: f64) {
        self.client.rate_limiter.set_rate(per_second);
    }
}

/// Returns the host and port of a feed's URL.
pub(crate) fn endpoint(endpoint: &str) -> Result<Endpoint, String> {
    endpoint_of_url(&address(endpoint)?)
}

fn endpoint_of_url(url: &reqwest::Url) -> Result<Endpoint, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default().ok_or("the URL contains no port")?;
    Ok(Endpoint { host, port })
}

/// Parses and checks the URL of a feed.
fn address(endpoint: &str) -> Result<reqwest::Url, String> {
    // The messages do not quote the URL, because it may contain a password.
    let url = reqwest::Url::parse(endpoint)
        .map_err(|error| format!("not a URL ({error}); write it as https://host/path"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("unsupported scheme `{}`; use https or http", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the URL has no host; write it as https://host/path".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "the URL contains credentials; use --username and --password-env instead";
        return Err(reason.to_owned());
    }
    Ok(url)
}

fn encode<V: Serialize>(request: &Request<V>) -> Result<Vec<u8>, RequestError> {
    let body = serde_json::to_vec(request).map_err(|error| RequestError::query(error.to_string()))?;
    if body.len() > REQUEST_BYTES_MAX {
        return Err(RequestError::query(format!("the request is larger than {REQUEST_BYTES_MAX} bytes")));
    }
    Ok(body)
}

fn read_token(reply: &Reply) -> Result<Secret, RequestError> {
    let data: LoginData = envelope::read_data(&reply.body)?;
    let login = data.authenticate.and_then(|authenticate| authenticate.username_and_password);
    let token = login.and_then(|login| login.token).filter(|token| !token.is_empty());
    token
        .map(Secret::new)
        .ok_or_else(|| RequestError::new(ErrorKind::Unauthorized, "returned no token for the account"))
}

fn read_count(reply: &Reply) -> Result<FeedCount, RequestError> {
    let data: CountData = envelope::read_data(&reply.body)?;
    let count = data.account.and_then(|account| account.diamonds_by_query_count);
    let count = count.ok_or_else(|| RequestError::new(ErrorKind::Malformed, "answered without a count"))?;
    Ok(FeedCount { count, source_time: reply.date })
}
