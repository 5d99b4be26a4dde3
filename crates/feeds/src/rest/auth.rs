//! Authentication of requests, with cached tokens.

use super::request::{join, set_query};
use super::{RestError, open_client};
use crate::http::client::{Client, ErrorKind, HttpRequest, Reply, RequestError, hide};
use crate::http::token::{Token, TokenCache};
use crate::rate_limiter::RateLimiter;
use crate::{FeedError, Network, Secret, Tuning};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Json;
use tidemill_core::feed_definition::request::{
    KeyLocation, LoginSpec, OauthSpec, TokenLocation, set_in_body,
};
use tidemill_core::feed_definition::{
    Auth, Body, Credential, FeedDefinition, JsonPath, JsonValue, Method, Place, secret_in,
};
use url::Url;

/// Levels of nesting in the answer of a token request.
const TOKEN_DEPTH_MAX: usize = 32;

/// Credentials of a feed.
pub(super) struct Authenticator {
    scheme: Scheme,
    /// All secrets, which are masked in errors.
    secrets: Vec<Secret>,
}

enum Scheme {
    None,
    Header(HeaderName, HeaderValue),
    Query(String, Secret),
    Token(Box<TokenScheme>),
}

struct TokenScheme {
    cache: TokenCache<RequestError>,
    request: HttpRequest,
    /// Client of the token URL, if it is on another host.
    client: Option<Client>,
    token_path: JsonPath,
    /// Path of the lifetime in seconds.
    lifetime_path: Option<JsonPath>,
    lifetime: Option<Duration>,
    location: TokenLocation,
}

type Secrets<'a> = &'a dyn Fn(&str) -> Option<Secret>;

/// Looks up secrets, and collects them for masking in errors.
struct SecretLookup<'a> {
    feed: &'a str,
    lookup: Secrets<'a>,
    found: Vec<Secret>,
}

impl SecretLookup<'_> {
    fn get(&mut self, name: &str) -> Result<Secret, RestError> {
        let secret = (self.lookup)(name).filter(|secret| !secret.expose().is_empty());
        let secret = secret.ok_or_else(|| {
            let at = format!("feed `{}`", self.feed);
            FeedError::Auth {
                at,
                reason: format!("needs the environment variable `{name}`, which is not set"),
            }
        })?;
        self.found.push(secret.clone());
        Ok(secret)
    }

    fn credential(&mut self, credential: &Credential) -> Result<String, RestError> {
        match credential {
            Credential::Plain(text) => Ok(text.clone()),
            Credential::Secret(name) => Ok(self.get(&name.env)?.expose().to_owned()),
        }
    }

    /// Replaces `{env: NAME}` by secrets.
    fn fill(&mut self, json: &Json) -> Result<Json, RestError> {
        if let Some(name) = secret_in(json) {
            return Ok(Json::String(self.get(name)?.expose().to_owned()));
        }
        Ok(match json {
            Json::Array(items) => {
                Json::Array(items.iter().map(|item| self.fill(item)).collect::<Result<_, _>>()?)
            }
            Json::Object(entries) => {
                let filled = entries.iter().map(|(key, value)| Ok((key.clone(), self.fill(value)?)));
                Json::Object(filled.collect::<Result<_, RestError>>()?)
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => json.clone(),
        })
    }

    fn header(&self, text: &str) -> Result<HeaderValue, RestError> {
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            let reason = "a secret contains a character that headers do not allow".to_owned();
            FeedError::InvalidSettings { feed: self.feed.to_owned(), reason }
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Authenticator {
    /// Uses a rate limiter for the requests of tokens from another host, too.
    pub(super) fn use_limiter(&mut self, limiter: &Arc<RateLimiter>) {
        match &mut self.scheme {
            Scheme::Token(token) => {
                if let Some(client) = &mut token.client {
                    client.rate_limiter = Arc::clone(limiter);
                }
            }
            Scheme::None | Scheme::Header(..) | Scheme::Query(..) => {}
        }
    }

    pub(super) fn new(
        definition: &FeedDefinition,
        base: &Url,
        secrets: Secrets<'_>,
        network: &Network,
        tuning: &Tuning,
    ) -> Result<Self, RestError> {
        let mut vault = SecretLookup { feed: &definition.feed, lookup: secrets, found: Vec::new() };
        let scheme = match &definition.client.auth {
            Auth::None => Scheme::None,
            Auth::Bearer { token } => {
                let text = format!("Bearer {}", vault.get(&token.env)?.expose());
                Scheme::Header(AUTHORIZATION, vault.header(&text)?)
            }
            Auth::HttpBasic { username, password } => {
                let username = vault.credential(username)?;
                let pair = format!("{username}:{}", vault.get(&password.env)?.expose());
                let encoded = base64(pair.as_bytes());
                vault.found.push(Secret::new(encoded.clone()));
                Scheme::Header(AUTHORIZATION, vault.header(&format!("Basic {encoded}"))?)
            }
            Auth::ApiKey { name, location, api_key } => {
                let key = vault.get(&api_key.env)?;
                match location {
                    KeyLocation::Query => Scheme::Query(name.clone(), key),
                    KeyLocation::Cookie => {
                        Scheme::Header(COOKIE, vault.header(&format!("{name}={}", key.expose()))?)
                    }
                    KeyLocation::Header => {
                        let name = HeaderName::try_from(name).map_err(|_| invalid_name(definition))?;
                        Scheme::Header(name, vault.header(key.expose())?)
                    }
                }
            }
            Auth::Oauth2ClientCredentials(oauth) => {
                Scheme::Token(Box::new(oauth_scheme(definition, oauth, base, &mut vault, network, tuning)?))
            }
            Auth::Login(login) => Scheme::Token(Box::new(login_scheme(definition, login, base, &mut vault)?)),
        };
        Ok(Self { scheme, secrets: vault.found })
    }

    /// Returns the current token, or requests one. `None` if the scheme has no tokens.
    pub(super) async fn token(&self, client: &Client) -> Result<Option<Arc<Token>>, RequestError> {
        let Scheme::Token(scheme) = &self.scheme else { return Ok(None) };
        let token = scheme.cache.get(|| async {
            let client = scheme.client.as_ref().unwrap_or(client);
            scheme.fetch(client).await.map_err(|error| self.hide_all(error))
        });
        Ok(Some(token.await?))
    }

    /// Drops a token that the source has refused.
    pub(super) fn forget(&self, token: Option<&Arc<Token>>) {
        if let (Scheme::Token(scheme), Some(token)) = (&self.scheme, token) {
            scheme.cache.forget(token);
        }
    }

    /// Adds the credentials to a request.
    pub(super) fn sign(&self, request: &mut HttpRequest, token: Option<&Token>) -> Result<(), RequestError> {
        match (&self.scheme, token) {
            (Scheme::None, _) | (Scheme::Token(_), None) => {}
            (Scheme::Header(name, value), _) => {
                request.headers.insert(name, value.clone());
            }
            (Scheme::Query(name, key), _) => {
                set_query(&mut request.url, [(name.clone(), key.expose().to_owned())]);
            }
            (Scheme::Token(scheme), Some(token)) => scheme.sign(request, token.secret.expose())?,
        }
        Ok(())
    }

    /// Removes the credentials from a token that is a URL: some sources repeat the query in the next URL.
    pub(super) fn without_credentials(&self, place: Place) -> Place {
        let name = match &self.scheme {
            Scheme::Query(name, _) => name,
            Scheme::Token(scheme) => match &scheme.location {
                TokenLocation::Query(name) => name,
                TokenLocation::Bearer
                | TokenLocation::Header(_)
                | TokenLocation::Cookie(_)
                | TokenLocation::Variable(_) => return place,
            },
            Scheme::None | Scheme::Header(..) => return place,
        };
        let Some(mut url) = place.token.as_deref().and_then(|token| Url::parse(token).ok()) else {
            return place;
        };
        let kept: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(key, _)| key != name)
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        url.query_pairs_mut().clear().extend_pairs(kept);
        Place { token: Some(url.into()), ..place }
    }

    /// Masks every secret in an error message, because the source may quote the request.
    pub(super) fn hide_all(&self, error: RequestError) -> RequestError {
        self.secrets.iter().fold(error, |error, secret| hide(error, secret.expose()))
    }
}

fn invalid_name(definition: &FeedDefinition) -> RestError {
    super::invalid_settings(definition, "the name of the key is not a header name".to_owned())
}

fn oauth_scheme(
    definition: &FeedDefinition,
    oauth: &OauthSpec,
    base: &Url,
    vault: &mut SecretLookup<'_>,
    network: &Network,
    tuning: &Tuning,
) -> Result<TokenScheme, RestError> {
    let (url, client) = match Url::parse(&oauth.access_token_url) {
        Ok(url) if url.origin() != base.origin() => {
            let client = open_client(&definition.feed, &url, 0.0, network, tuning.clone())?;
            (url, Some(client))
        }
        Ok(url) => (url, None),
        Err(_) => (join(base, &oauth.access_token_url), None),
    };
    let client_id = vault.credential(&oauth.client_id)?;
    let client_secret = vault.get(&oauth.client_secret.env)?;
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    form.append_pair("client_id", &client_id).append_pair("client_secret", client_secret.expose());
    form.extend_pairs(&oauth.access_token_request_data);
    let headers = HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json")),
        (CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
    ]);
    let body = form.finish().into_bytes();
    let seconds = |secs: u32| Duration::from_secs(secs.into());
    Ok(TokenScheme {
        cache: TokenCache::new(),
        request: HttpRequest { method: reqwest::Method::POST, url, headers, body, accepted: Vec::new() },
        client,
        token_path: JsonPath::key("access_token"),
        lifetime_path: Some(JsonPath::key("expires_in")),
        lifetime: oauth.default_token_expiration_secs.map(seconds),
        location: TokenLocation::Bearer,
    })
}

fn login_scheme(
    definition: &FeedDefinition,
    login: &LoginSpec,
    base: &Url,
    vault: &mut SecretLookup<'_>,
) -> Result<TokenScheme, RestError> {
    let body = match &login.body {
        None => Vec::new(),
        Some(Body::Json(json)) => vault.fill(json)?.to_string().into_bytes(),
        Some(Body::Graphql { query, variables }) => {
            let variables = vault.fill(variables)?;
            Body::Graphql { query: query.clone(), variables }.document().to_string().into_bytes()
        }
    };
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    if !body.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &definition.client.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    let method = match login.method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
    };
    let url = join(base, &login.path);
    Ok(TokenScheme {
        cache: TokenCache::new(),
        request: HttpRequest { method, url, headers, body, accepted: Vec::new() },
        client: None,
        token_path: login.token_path.clone(),
        lifetime_path: None,
        lifetime: login.lifetime_secs.map(|secs| Duration::from_secs(secs.into())),
        location: login.location.clone(),
    })
}

impl TokenScheme {
    async fn fetch(&self, client: &Client) -> Result<Token, RequestError> {
        let asked_at = tokio::time::Instant::now();
        let read = |reply: &Reply| self.read(reply);
        let sent = client.request(&self.request, client.tuning.answer_bytes_max, read).await;
        let (secret, lifetime) = sent.map_err(|mut error| {
            // A token endpoint answers 400 to wrong credentials.
            if error.kind == ErrorKind::Rejected {
                error.kind = ErrorKind::Unauthorized;
            }
            error
        })?;
        let lifetime = lifetime.or(self.lifetime).unwrap_or(client.tuning.token_lifetime);
        Ok(Token::with_lifetime(secret, asked_at, lifetime, &client.tuning))
    }

    /// Reads the token and its lifetime. The answer is never quoted: it contains the token.
    fn read(&self, reply: &Reply) -> Result<(Secret, Option<Duration>), RequestError> {
        let body = JsonValue::parse(&reply.body, TOKEN_DEPTH_MAX)
            .map_err(|_| RequestError::new(ErrorKind::Malformed, "answered the login without JSON"))?;
        if let Some(error) = crate::http::envelope::find_error(&reply.body) {
            return Err(error);
        }
        let token =
            self.token_path.select(&body).and_then(JsonValue::scalar).filter(|token| !token.is_empty());
        let Some(token) = token else {
            let reason = format!("answered the login without a token at `{}`", self.token_path);
            return Err(RequestError::new(ErrorKind::Unauthorized, reason));
        };
        let lifetime = self.lifetime_path.as_ref().and_then(|path| path.select(&body)?.count());
        Ok((Secret::new(token), lifetime.map(Duration::from_secs)))
    }

    fn sign(&self, request: &mut HttpRequest, token: &str) -> Result<(), RequestError> {
        let header = |text: &str| {
            let mut value = HeaderValue::try_from(text).map_err(|_| {
                RequestError::new(ErrorKind::Malformed, "answered a token that headers do not allow")
            })?;
            value.set_sensitive(true);
            Ok::<_, RequestError>(value)
        };
        match &self.location {
            TokenLocation::Bearer => {
                request.headers.insert(AUTHORIZATION, header(&format!("Bearer {token}"))?);
            }
            TokenLocation::Header(name) => {
                let name = HeaderName::try_from(name).map_err(|_| {
                    RequestError::query("the name of the token is not a header name".to_owned())
                })?;
                request.headers.insert(name, header(token)?);
            }
            TokenLocation::Cookie(name) => {
                request.headers.insert(COOKIE, header(&format!("{name}={token}"))?);
            }
            TokenLocation::Query(name) => set_query(&mut request.url, [(name.clone(), token.to_owned())]),
            TokenLocation::Variable(name) => {
                let mut body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
                let path = JsonPath::key("variables").child(name.as_str());
                set_in_body(&mut body, &path, Json::String(token.to_owned()));
                request.body = body.to_string().into_bytes();
            }
        }
        Ok(())
    }
}

/// Encodes bytes in Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = (group >> (18 - 6 * place)) & 63;
            let is_padding = place > chunk.len();
            text.push(if is_padding { '=' } else { char::from(DIGITS[digit as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_has_padding() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("a:b?>", "YTpiPz4=")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
