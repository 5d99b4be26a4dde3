//! Builds the requests of a definition.

use super::{RestError, invalid_settings};
use crate::FeedError;
use crate::http::client::HttpRequest;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidemill_core::Json;
use tidemill_core::feed_definition::paging::Lookup;
use tidemill_core::feed_definition::request::set_in_body;
use tidemill_core::feed_definition::{Body, FeedDefinition, Method, Param, ParamTarget, RequestSpec};
use url::Url;

/// Largest size of a request in bytes. Only the list of ids makes a request grow.
const REQUEST_BYTES_MAX: usize = 500 * 1024;

/// Appends a path to the base URL.
pub(super) fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let (start, end) = (base.path().trim_end_matches('/'), path.trim_start_matches('/'));
    url.set_path(&format!("{start}/{end}"));
    url
}

/// Builds a request with parameters. `next` is the complete URL of a page; it already contains the query.
pub(super) fn build(
    definition: &FeedDefinition,
    base: &Url,
    spec: &RequestSpec,
    params: &[Param],
    next: Option<&str>,
) -> Result<HttpRequest, RestError> {
    let url = if let Some(next) = next {
        next_url(base, next)?
    } else {
        let mut url = join(base, &spec.path);
        set_query(&mut url, spec.params.iter().map(|(name, value)| (name.clone(), value.clone())));
        let query = params.iter().filter_map(|(target, value)| match target {
            ParamTarget::Query(name) => Some((name.clone(), value.to_text())),
            ParamTarget::Body(_) => None,
        });
        set_query(&mut url, query);
        url
    };
    let mut body = spec.body.as_ref().map(Body::document);
    for (target, value) in params {
        if let ParamTarget::Body(path) = target {
            let body = body.get_or_insert_with(|| Json::Object(serde_json::Map::new()));
            set_in_body(body, path, value.to_json());
        }
    }
    finish(definition, spec.method, url, body)
}

/// Returns the URL of a next page. It was checked when it was received; the stored one is checked again.
fn next_url(base: &Url, next: &str) -> Result<Url, RestError> {
    let url = Url::parse(next).ok().filter(|url| url.origin() == base.origin());
    url.ok_or_else(|| {
        let reason = "the stored next URL is not on the host of the feed".to_owned();
        RestError::Feed(FeedError::InvalidQuery { reason })
    })
}

/// Builds the request for one record.
pub(super) fn build_lookup(
    definition: &FeedDefinition,
    base: &Url,
    path: &str,
    id: &str,
) -> Result<HttpRequest, RestError> {
    let (before, after) = path.split_once("{id}").unwrap_or((path, ""));
    let encoded: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    // In a path, a space is `%20`. A dot segment would lead to another path.
    let encoded = encoded.replace('+', "%20");
    if matches!(id, "." | "..") {
        let reason = format!("the id `{id}` cannot be part of a path");
        return Err(RestError::Feed(FeedError::InvalidQuery { reason }));
    }
    let url = join(base, &format!("{before}{encoded}{after}"));
    finish(definition, Method::Get, url, None)
}

/// Builds the list request for several ids.
pub(super) fn build_find(
    definition: &FeedDefinition,
    base: &Url,
    params: &[Param],
    ids: &[String],
) -> Result<HttpRequest, RestError> {
    let spec = &definition.resource.request;
    let Some(Lookup::Ids { param, separator, .. }) = &definition.deletes.lookup else {
        return build(definition, base, spec, params, None);
    };
    let mut request = build(definition, base, spec, params, None)?;
    match param {
        ParamTarget::Query(name) => {
            if let Some(separator) = separator {
                set_query(&mut request.url, [(name.clone(), ids.join(separator))]);
            } else {
                request.url.query_pairs_mut().extend_pairs(ids.iter().map(|id| (name, id)));
            }
        }
        ParamTarget::Body(path) => {
            let mut body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
            set_in_body(&mut body, path, Json::from(ids.to_vec()));
            request.body = body.to_string().into_bytes();
        }
    }
    check_size(request)
}

/// Sets query parameters. One of the same name is replaced.
pub(super) fn set_query(url: &mut Url, params: impl IntoIterator<Item = (String, String)>) {
    let params: Vec<(String, String)> = params.into_iter().collect();
    if params.is_empty() {
        return;
    }
    let is_kept = |name: &str| !params.iter().any(|(other, _)| other == name);
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(params);
}

fn finish(
    definition: &FeedDefinition,
    method: Method,
    url: Url,
    body: Option<Json>,
) -> Result<HttpRequest, RestError> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    if body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &definition.client.headers {
        let name =
            HeaderName::try_from(name).map_err(|error| invalid_settings(definition, error.to_string()))?;
        let value =
            HeaderValue::try_from(value).map_err(|error| invalid_settings(definition, error.to_string()))?;
        headers.insert(name, value);
    }
    let method = match method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
    };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    check_size(HttpRequest { method, url, headers, body, accepted: Vec::new() })
}

fn check_size(request: HttpRequest) -> Result<HttpRequest, RestError> {
    if request.body.len() + request.url.as_str().len() > REQUEST_BYTES_MAX {
        let reason = format!("the request is larger than {REQUEST_BYTES_MAX} bytes");
        return Err(RestError::Feed(FeedError::InvalidQuery { reason }));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_appended_to_the_base() {
        for (base, path, expected) in [
            ("https://x.test", "/orders", "https://x.test/orders"),
            ("https://x.test/v1/", "orders", "https://x.test/v1/orders"),
            ("https://x.test/v1", "/a b", "https://x.test/v1/a%20b"),
        ] {
            assert_eq!(join(&Url::parse(base).unwrap(), path).as_str(), expected);
        }
    }

    #[test]
    fn query_parameter_of_the_same_name_is_replaced() {
        let mut url = Url::parse("https://x.test/?a=1&b=2").unwrap();
        set_query(&mut url, [("a".to_owned(), "x y".to_owned()), ("c".to_owned(), "3".to_owned())]);
        assert_eq!(url.as_str(), "https://x.test/?b=2&a=x+y&c=3");
    }
}
