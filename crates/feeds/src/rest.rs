//! The REST source: an HTTP client for a feed definition.
//!
//! It counts records, reads pages, looks records up by id and maps them to columns. Retries, the rate limit,
//! authentication and the check of hosts are internal. Answers are bounded in bytes, nesting and time.

mod auth;
mod contract;
mod error;
mod expression;
mod feed;
mod loops;
mod map;
mod page;
mod request;
mod resolve;

pub use contract::{ContractRow, Verdict, apply_contract};
pub use error::RestError;
pub use expression::{Expression, ExpressionError};
pub use feed::time_of;
pub(crate) use feed::{RestFeed, digest};
pub use map::{MappedRow, Mapper};
pub use page::{RestItem, RestPage, RestRejection};
pub use resolve::{Exploration, explore, explore_with};

use crate::budgets::BudgetMember;
use crate::http::client::{Client, ErrorKind, HttpRequest, Quotation, Reply, RequestError, excerpt, hide};
use crate::http::{envelope, markup, tls};
use crate::{Budgets, Endpoint, FeedCount, FeedError, Network, Secret, Tuning};
use auth::Authenticator;
use loops::TokenMemory;
use std::collections::HashMap;
use std::time::Duration;
use tidemill_core::definition::DefinitionError;
use tidemill_core::feed_definition::keys_rise;
use tidemill_core::feed_definition::paging::{CountSpec, Lookup};
use tidemill_core::feed_definition::{
    Answer, FeedDefinition, JsonValue, PageAccess, Paginator, Partition, Place, RecordQuery, TotalLocation,
    next_page, parse_with, request_page,
};
use tidemill_core::limits::{JSON_DEPTH_MAX, JSON_ENVELOPE_LEVELS, READ_BYTES_MAX};
use tokio::sync::OnceCell;
use url::Url;

/// Levels of nesting in an answer.
const ANSWER_DEPTH_MAX: usize = JSON_DEPTH_MAX + JSON_ENVELOPE_LEVELS;
/// Largest size of a page in bytes, not counting its records.
const WRAPPING_BYTES_MAX: usize = 64 * 1024;

/// Parses a feed definition and compiles its CEL expressions.
pub fn parse_definition(text: &str) -> Result<FeedDefinition, Vec<DefinitionError>> {
    parse_with(text, &|text| Expression::compile(text).map(|_| ()).map_err(|error| error.to_string()))
}

/// Returns the hosts that a definition connects to.
pub fn endpoints_of(definition: &FeedDefinition) -> Result<Vec<Endpoint>, RestError> {
    let parsed = definition.urls().into_iter().map(|url| {
        let url = Url::parse(url).map_err(|error| invalid_settings(definition, error.to_string()))?;
        endpoint(&url).ok_or_else(|| invalid_settings(definition, "the URL has no host".to_owned()))
    });
    parsed.collect()
}

fn endpoint(url: &Url) -> Option<Endpoint> {
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some(Endpoint { host, port: url.port_or_known_default()? })
}

fn invalid_settings(definition: &FeedDefinition, reason: String) -> RestError {
    RestError::Feed(FeedError::InvalidSettings { feed: definition.feed.clone(), reason })
}

/// Creates the client of one URL's host. The network must allow the host.
fn open_client(
    name: &str,
    url: &Url,
    rate: f64,
    network: &Network,
    tuning: Tuning,
) -> Result<Client, RestError> {
    let invalid = |reason: String| FeedError::InvalidEndpoint { feed: name.to_owned(), reason };
    if let Network::Listed(hosts) = network {
        let Endpoint { host, port } =
            endpoint(url).ok_or_else(|| invalid("the URL has no host".to_owned()))?;
        let refused = |reason| FeedError::OutOfReach { at: format!("feed `{name}`"), reason };
        hosts.check(&host, port).map_err(refused)?;
    }
    let tls = tls::config(tls::roots(&tuning.authorities)).map_err(invalid)?;
    let client = Client::new(url.clone(), rate, tls, network, tuning).map_err(invalid)?;
    Ok(client.with_quotation(Quotation::Body))
}

/// Client of one feed definition.
pub struct RestSource {
    definition: FeedDefinition,
    base: Url,
    client: Client,
    auth: Authenticator,
    mapper: Mapper,
    /// Paginator and data selector that the first answer revealed.
    resolved: OnceCell<resolve::Resolution>,
    loops: TokenMemory,
    /// Share in a rate limit of several feeds.
    budget: Option<BudgetMember>,
}

/// An answer of the source as JSON.
struct ParsedAnswer {
    /// URL of the request, without credentials.
    url: Url,
    headers: Vec<(String, String)>,
    body: JsonValue,
    date: Option<tidemill_core::Timestamp>,
}

impl ParsedAnswer {
    fn as_answer<'a>(&'a self, records: &[&'a JsonValue]) -> Answer<'a> {
        Answer {
            url: self.url.as_str(),
            headers: &self.headers,
            body: &self.body,
            records: records.len(),
            last_record: records.last().copied(),
        }
    }
}

impl RestSource {
    /// Creates the client of a definition. `secrets` returns the values of environment variables. Sends no request.
    pub fn new(
        definition: FeedDefinition,
        secrets: &dyn Fn(&str) -> Option<Secret>,
        network: &Network,
        mut tuning: Tuning,
    ) -> Result<Self, RestError> {
        let base = Url::parse(&definition.client.base_url)
            .map_err(|error| invalid_settings(&definition, error.to_string()))?;
        let timeout = Duration::from_secs(definition.client.timeout_secs.into());
        tuning.answer_timeout = timeout.min(tuning.answer_timeout_max);
        let mapper = Mapper::new(&definition, tuning.item_bytes_max)
            .map_err(|error| invalid_settings(&definition, error.to_string()))?;
        let auth = Authenticator::new(&definition, &base, secrets, network, &tuning)?;
        let rate = f64::from(definition.client.rate);
        let client = open_client(&definition.feed, &base, rate, network, tuning)?;
        Ok(Self {
            definition,
            base,
            client,
            auth,
            mapper,
            resolved: OnceCell::new(),
            loops: TokenMemory::default(),
            budget: None,
        })
    }

    /// Uses the rate limiter of the definition's budget, which other feeds of the project share.
    pub(crate) fn share_budget(&mut self, project: &str, budgets: &Budgets) {
        let client = &self.definition.client;
        let Some(name) = &client.budget else { return budgets.leave(&self.definition.feed) };
        let member = budgets.join(project, name, &self.definition.feed, f64::from(client.rate));
        self.client.rate_limiter = member.limiter();
        self.auth.use_limiter(&member.limiter());
        self.budget = Some(member);
    }

    pub const fn definition(&self) -> &FeedDefinition {
        &self.definition
    }

    /// Returns host and path of the API, for messages.
    pub fn at(&self) -> &str {
        &self.client.at
    }

    /// Returns the largest number of records on a page.
    pub fn page_limit(&self) -> u32 {
        self.definition.paginator.page_size().unwrap_or(u32::MAX)
    }

    /// Sets the request rate per second: this process's share of the feed's limit. 0 means unlimited.
    pub fn set_rate(&self, per_second: f64) {
        match &self.budget {
            Some(member) => member.set_rate(per_second),
            None => self.client.rate_limiter.set_rate(per_second),
        }
    }

    /// Returns the paginator. `auto` is resolved with one request.
    pub async fn paginator(&self) -> Result<&Paginator, RestError> {
        Ok(&self.resolved().await?.paginator)
    }

    /// Counts the records of a query. `None` if the definition has no count.
    pub async fn count(&self, query: &RecordQuery) -> Result<Option<FeedCount>, RestError> {
        let (spec, total) = match (&self.definition.partition, &self.definition.trust.total) {
            (Partition::Heatmap { count: CountSpec { total, request }, .. }, _) => (request.as_ref(), total),
            (Partition::None | Partition::TimeWindows { .. } | Partition::Values { .. }, Some(total)) => {
                (None, total)
            }
            (Partition::None | Partition::TimeWindows { .. } | Partition::Values { .. }, None) => {
                return Ok(None);
            }
        };
        let params = self.definition.filter_params(query)?;
        let request = match spec {
            Some(spec) => request::build(&self.definition, &self.base, spec, &params, None)?,
            None => self.smallest_page(params).await?,
        };
        let answer = self.send(&request).await?;
        let count = answer.as_answer(&[]).total(total).ok_or_else(|| self.no_total(total))?;
        Ok(Some(FeedCount { count, source_time: answer.date }))
    }

    /// Returns the request of the first page with one record, if the paginator allows that.
    async fn smallest_page(
        &self,
        mut params: Vec<tidemill_core::feed_definition::Param>,
    ) -> Result<HttpRequest, RestError> {
        let paginator = self.paginator().await?;
        let limit = match paginator.access() {
            PageAccess::Random => 1,
            PageAccess::Aligned(size) => size,
            PageAccess::Sequential if paginator.has_limit() => 1,
            PageAccess::Sequential => paginator.page_size().unwrap_or(1),
        };
        params.extend(request_page(paginator, &Place::default(), limit)?.params);
        request::build(&self.definition, &self.base, &self.definition.resource.request, &params, None)
    }

    fn no_total(&self, total: &TotalLocation) -> RestError {
        let reason = format!("answered without a total in {total}");
        RequestError::new(ErrorKind::Malformed, reason).into_feed_error(&self.client.at).into()
    }

    /// Reads at most `limit` records at a place. A page that is too large is requested again with fewer records.
    pub async fn page(&self, query: &RecordQuery, place: &Place, limit: u32) -> Result<RestPage, RestError> {
        let resolved = self.resolved().await?;
        let paginator = &resolved.paginator;
        let mut limit = limit.clamp(1, paginator.page_size().unwrap_or(u32::MAX));
        let filters = self.definition.filter_params(query)?;
        self.loops.begin(query, place);
        loop {
            let page = request_page(paginator, place, limit)?;
            let mut params = filters.clone();
            params.extend(page.params);
            let spec = &self.definition.resource.request;
            let request = request::build(&self.definition, &self.base, spec, &params, page.url.as_deref())?;
            let may_shrink = paginator.has_limit() && page.url.is_none() && limit > 2;
            let may_shrink = may_shrink && !matches!(paginator.access(), PageAccess::Aligned(_));
            match self.send_page(&request).await {
                Err(error) if error.kind == ErrorKind::TooLarge && may_shrink => {
                    tracing::debug!(feed.at = %self.client.at, limit, "page too large, requesting less");
                    limit = (limit / 2).max(2);
                }
                Err(error) => return Err(error.into_feed_error(&self.client.at).into()),
                Ok(answer) => return self.read_page(query, place, limit, resolved, &answer),
            }
        }
    }

    fn read_page(
        &self,
        query: &RecordQuery,
        place: &Place,
        limit: u32,
        resolved: &resolve::Resolution,
        answer: &ParsedAnswer,
    ) -> Result<RestPage, RestError> {
        let records = self.records_of(resolved, answer)?;
        let found = next_page(
            &resolved.paginator,
            &self.definition.trust,
            place,
            limit,
            &answer.as_answer(&records),
        )?;
        let next = found.next.map(|next| self.auth.without_credentials(next));
        if let Some(next) = &next {
            self.loops.check(query, place, next)?;
        }
        let (items, rejected) = page::read(&records, &self.definition, self.client.tuning.item_bytes_max);
        let is_last = next.is_none();
        let key = resolved.paginator.key_path();
        let keys_rise = key.is_some_and(|key| keys_rise(key, place.token.as_deref(), &records));
        Ok(RestPage {
            items,
            rejected,
            next,
            is_last,
            total: found.total,
            keys_rise,
            source_time: answer.date,
        })
    }

    /// Returns the list of records of an answer. An error that a source sends with status 200 has none.
    fn records_of<'a>(
        &self,
        resolved: &resolve::Resolution,
        answer: &'a ParsedAnswer,
    ) -> Result<Vec<&'a JsonValue>, RestError> {
        let missing =
            || self.malformed(format!("answered no list of records at `{}`", resolved.data_selector));
        resolved.data_selector.select_all(&answer.body).ok_or_else(missing)
    }

    fn malformed(&self, reason: String) -> RestError {
        RequestError::new(ErrorKind::Malformed, reason).into_feed_error(&self.client.at).into()
    }

    /// Returns the subset of `ids` that the source still has. `None` if the definition has no lookup.
    ///
    /// If a response contains a record without an id, all requested ids count as present: it could be any of them.
    pub async fn lookup(&self, ids: &[String]) -> Result<Option<Vec<String>>, RestError> {
        match &self.definition.deletes.lookup {
            None => Ok(None),
            Some(Lookup::GoneStatus { path, statuses }) => {
                let mut found = Vec::with_capacity(ids.len());
                for id in ids {
                    if self.exists(path, id, statuses).await? {
                        found.push(id.clone());
                    }
                }
                Ok(Some(found))
            }
            Some(Lookup::Ids { ids_max, .. }) => {
                let mut found = Vec::with_capacity(ids.len());
                for ids in ids.chunks((*ids_max).max(1) as usize) {
                    found.extend(self.find(ids).await?);
                }
                Ok(Some(found))
            }
        }
    }

    async fn exists(&self, path: &str, id: &str, statuses: &[u16]) -> Result<bool, RestError> {
        let mut request = request::build_lookup(&self.definition, &self.base, path, id)?;
        request.accepted = statuses.to_vec();
        let bytes_max = self.page_bytes_max();
        let read = |reply: &Reply| Ok(reply.status.is_success());
        let sent = self.authenticated(&request, bytes_max, read).await;
        sent.map_err(|error| error.into_feed_error(&self.client.at).into())
    }

    /// Finds ids with list requests. A page may be short, so missing ids are requested again until a response contains
    /// none of them.
    async fn find(&self, ids: &[String]) -> Result<Vec<String>, RestError> {
        let mut found = Vec::with_capacity(ids.len());
        let mut missing: Vec<String> = ids.to_vec();
        while !missing.is_empty() {
            let listed = self.find_some(&missing).await?;
            if listed.is_empty() {
                break;
            }
            missing.retain(|id| !listed.contains_key(id));
            found.extend(listed.into_iter().filter(|(_, is_deleted)| !is_deleted).map(|(id, _)| id));
        }
        Ok(found)
    }

    /// Returns the listed ids, each with whether its record is marked as deleted.
    async fn find_some(&self, ids: &[String]) -> Result<HashMap<String, bool>, RestError> {
        let resolved = self.resolved().await?;
        let limit = resolved.paginator.page_size().unwrap_or(u32::MAX);
        let params = request_page(&resolved.paginator, &Place::default(), limit)?.params;
        let request = request::build_find(&self.definition, &self.base, &params, ids)?;
        let answer = self.send(&request).await?;
        let mut listed = HashMap::new();
        for record in self.records_of(resolved, &answer)? {
            match page::record_id(record, &self.definition.resource.primary_key) {
                Ok(id) if ids.contains(&id) => {
                    listed.insert(id, page::is_deleted(record, &self.definition));
                }
                // The source has ignored the filter, so the absence of an id means nothing.
                Ok(id) => {
                    let reason =
                        format!("answered a lookup with the record `{id}`, for which it was not asked");
                    return Err(self.malformed(format!("{reason}; correct `deletes.lookup`")));
                }
                Err(_) => return Ok(ids.iter().map(|id| (id.clone(), false)).collect()),
            }
        }
        Ok(listed)
    }

    /// Maps a record to columns.
    pub fn map(&self, payload: &str) -> Result<MappedRow, RestError> {
        self.mapper.map(payload).map_err(|error| RestError::Record(error.to_string()))
    }

    fn page_bytes_max(&self) -> usize {
        self.client.tuning.item_bytes_max.max(READ_BYTES_MAX) + WRAPPING_BYTES_MAX
    }

    async fn send(&self, request: &HttpRequest) -> Result<ParsedAnswer, RestError> {
        let sent = self.send_page(request).await;
        sent.map_err(|error| error.into_feed_error(&self.client.at).into())
    }

    async fn send_page(&self, request: &HttpRequest) -> Result<ParsedAnswer, RequestError> {
        let is_graphql = self
            .definition
            .resource
            .request
            .body
            .as_ref()
            .is_some_and(tidemill_core::feed_definition::Body::is_graphql);
        let read = |reply: &Reply| {
            if is_graphql && let Some(error) = envelope::find_error(&reply.body) {
                return Err(error);
            }
            read_answer(&request.url, reply)
        };
        self.authenticated(request, self.page_bytes_max(), read).await
    }

    /// Sends a request with credentials, and once more with a new token if the first is refused.
    async fn authenticated<T>(
        &self,
        request: &HttpRequest,
        bytes_max: usize,
        read: impl Fn(&Reply) -> Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let mut is_second = false;
        loop {
            let token = self.auth.token(&self.client).await?;
            let mut signed = request.clone();
            self.auth.sign(&mut signed, token.as_deref())?;
            match self.client.request(&signed, bytes_max, &read).await {
                Err(error) if error.kind == ErrorKind::Unauthorized && !is_second && token.is_some() => {
                    tracing::debug!(feed.at = %self.client.at, "token refused; requesting a new one");
                    self.auth.forget(token.as_ref());
                    is_second = true;
                }
                Err(error) => {
                    let hidden = token.map_or(error.clone(), |token| hide(error, token.secret.expose()));
                    return Err(self.auth.hide_all(hidden));
                }
                Ok(answer) => return Ok(answer),
            }
        }
    }
}

/// Parses an answer. A truncated one is retried, as is one that is not JSON; one that is too deep is not.
fn read_answer(url: &Url, reply: &Reply) -> Result<ParsedAnswer, RequestError> {
    use tidemill_core::feed_definition::value::ParseError;
    let body = JsonValue::parse(&reply.body, ANSWER_DEPTH_MAX).map_err(|error| match error {
        ParseError::Truncated if !reply.body.is_empty() => {
            RequestError::new(ErrorKind::Unreachable, "answered with truncated JSON")
        }
        ParseError::TooDeep { .. } => {
            RequestError::new(ErrorKind::Rejected, format!("answered JSON that {error}"))
        }
        ParseError::Truncated | ParseError::Invalid { .. } => {
            let reason = match (markup::problem(&reply.body, "the URL of the feed"), &reply.body) {
                (Some(problem), _) => problem,
                (None, body) if body.trim_ascii_start().is_empty() => "answered without a body".to_owned(),
                (None, body) => format!("answered text that {error} (`{}`)", excerpt(body)),
            };
            RequestError::new(ErrorKind::Malformed, reason)
        }
    })?;
    let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(str::to_owned);
    let headers =
        reply.headers.iter().filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
    Ok(ParsedAnswer { url: url.clone(), headers: headers.collect(), body, date: reply.date })
}
