//! Resolution of `auto`: one request reveals the paginator and the list of records. `feed try` uses it too.

use super::{ANSWER_DEPTH_MAX, RestError, RestSource, parse_definition, request};
use crate::http::client::{ErrorKind, RequestError};
use crate::{FeedError, Network, Secret, Tuning};
use tidemill_core::feed_definition::recognise::find_records;
use tidemill_core::feed_definition::{
    ClientKeys, Column, FeedDefinition, JsonPath, JsonValue, Paginator, Place, Recognition, RecordQuery,
    add_columns, infer_columns, recognise,
};
use url::Url;

/// Paginator and data selector of a source.
pub(super) struct Resolution {
    pub(super) paginator: Paginator,
    pub(super) data_selector: JsonPath,
}

impl RestSource {
    /// Returns the paginator and the data selector. If the definition leaves them open, the first answer reveals them.
    pub(super) async fn resolved(&self) -> Result<&Resolution, RestError> {
        self.resolved.get_or_try_init(|| self.resolve()).await
    }

    async fn resolve(&self) -> Result<Resolution, RestError> {
        let is_auto = matches!(self.definition.paginator, Paginator::Auto { .. });
        if let (Some(data_selector), false) = (&self.definition.resource.data_selector, is_auto) {
            return Ok(Resolution {
                paginator: self.definition.paginator.clone(),
                data_selector: data_selector.clone(),
            });
        }
        let spec = &self.definition.resource.request;
        let params = if is_auto {
            Vec::new()
        } else {
            let limit = self.definition.paginator.page_size().unwrap_or(1);
            let place = tidemill_core::feed_definition::Place::default();
            tidemill_core::feed_definition::request_page(&self.definition.paginator, &place, limit)?.params
        };
        let request = request::build(&self.definition, &self.base, spec, &params, None)?;
        let answer = self.send(&request).await?;
        let found = recognise(answer.url.as_str(), &answer.headers, &answer.body);
        let undecided = |what: &str, key: &str| {
            let reason = format!("answered without a recognisable {what}; write `{key}` in the definition");
            RequestError::new(ErrorKind::Malformed, reason).into_feed_error(&self.client.at)
        };
        let selector = self.definition.resource.data_selector.clone().or_else(|| find_records(&answer.body));
        let data_selector = selector.ok_or_else(|| undecided("list of records", "data_selector"))?;
        let paginator = if is_auto {
            found.paginator.ok_or_else(|| undecided("pagination", "paginator"))?
        } else {
            self.definition.paginator.clone()
        };
        let word = paginator.word();
        tracing::info!(feed.at = %self.client.at, paginator = word, %data_selector, "recognised the source");
        Ok(Resolution { paginator, data_selector })
    }
}

impl RestSource {
    /// Returns the definition with its open parts resolved: the paginator, the list of records, and the columns, which
    /// are inferred from the first page. The columns that are known from an earlier page stay as they are.
    pub async fn pinned(&self, known: &[Column]) -> Result<FeedDefinition, RestError> {
        let resolved = self.resolved().await?;
        let mut definition = self.definition.clone();
        definition.paginator = resolved.paginator.clone();
        definition.resource.data_selector = Some(resolved.data_selector.clone());
        if definition.into.columns.is_empty() {
            let limit = self.page_limit();
            let page = self.page(&RecordQuery::default(), &Place::default(), limit).await?;
            let records =
                page.items.iter().map(|item| JsonValue::parse(item.payload.as_bytes(), ANSWER_DEPTH_MAX));
            let records: Vec<JsonValue> = records.filter_map(Result::ok).collect();
            if records.is_empty() && known.is_empty() {
                let reason =
                    "answered no records, so columns cannot be inferred; write `columns` in the definition";
                let error = RequestError::new(ErrorKind::Malformed, reason);
                return Err(error.into_feed_error(&self.client.at).into());
            }
            let mut found = infer_columns(&records);
            // Later records may lack what the first ones have.
            let keys = definition.into.primary_key.clone();
            for column in &mut found {
                column.nullable = !keys.contains(&column.name);
            }
            definition.into.columns = add_columns(known, found);
        }
        Ok(definition)
    }
}

/// The result of one request to an unknown API.
#[derive(Debug, Clone)]
pub struct Exploration {
    pub url: Url,
    /// Headers and authentication of the request.
    pub client: ClientKeys,
    pub recognition: Recognition,
    /// The first records of the answer.
    pub sample: Vec<JsonValue>,
}

impl Exploration {
    /// Returns the definition of a feed that reads this API into `table`.
    pub fn to_yaml(&self, feed: &str, table: &str) -> String {
        self.recognition.to_yaml(feed, &self.url, table, &self.client)
    }
}

/// Records of a sample.
const SAMPLE_MAX: usize = 20;

/// Requests a URL once, without credentials, and recognises the API.
pub async fn explore(url: &str, network: &Network, tuning: Tuning) -> Result<Exploration, RestError> {
    explore_with(url, ClientKeys::default(), &|_| None, network, tuning).await
}

/// Requests a URL once with these headers and credentials, and recognises the API. `secrets` returns the values of
/// environment variables.
pub async fn explore_with(
    url: &str,
    client: ClientKeys,
    secrets: &(dyn Fn(&str) -> Option<Secret> + Sync),
    network: &Network,
    tuning: Tuning,
) -> Result<Exploration, RestError> {
    let invalid = |reason: String| FeedError::InvalidEndpoint { feed: "try".to_owned(), reason };
    let parsed = Url::parse(url).map_err(|error| invalid(format!("not a URL ({error})")))?;
    if !matches!(parsed.scheme(), "http" | "https")
        || !parsed.username().is_empty()
        || parsed.password().is_some()
    {
        return Err(invalid("write it as https://host/path, without credentials".to_owned()).into());
    }
    let definition = parse_definition(&client.request_yaml(&parsed)).map_err(|errors| {
        let reason = errors.into_iter().next().map(|error| error.message).unwrap_or_default();
        FeedError::InvalidSettings { feed: "try".to_owned(), reason }
    })?;
    let source = RestSource::new(definition, secrets, network, tuning)?;
    let spec = &source.definition.resource.request;
    let request = request::build(&source.definition, &source.base, spec, &[], Some(parsed.as_str()))?;
    let answer = source.send(&request).await?;
    let recognition = recognise(answer.url.as_str(), &answer.headers, &answer.body);
    let records = recognition.data_selector.as_ref().and_then(|path| path.select_all(&answer.body));
    let sample = records.unwrap_or_default().into_iter().take(SAMPLE_MAX).cloned().collect();
    Ok(Exploration { url: parsed, client, recognition, sample })
}
