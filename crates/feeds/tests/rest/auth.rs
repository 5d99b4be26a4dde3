//! Every kind of authentication, and the renewal of tokens.

use crate::fixture::{ReceivedRequest, Server, definition, json_response, quick, read_all, record, status};
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_core::feed_definition::{Place, RecordQuery};
use tidemill_feeds::ErrorClass;

/// A definition with this authentication.
fn with_auth(auth: &str) -> String {
    definition("single_page", "").replace("rate: 0", &format!("rate: 0, auth: {auth}"))
}

/// A server that answers records only to requests that `accept` allows.
async fn guarded(accept: impl Fn(&ReceivedRequest) -> bool + Send + Sync + 'static) -> Arc<Server> {
    Server::start(move |request| {
        if accept(request) {
            json_response(&json!({ "data": [record(1)] }))
        } else {
            status(401, "who are you")
        }
    })
    .await
}

#[tokio::test]
async fn static_credentials_are_sent() {
    type Accept = fn(&ReceivedRequest) -> bool;
    let cases: [(&str, Accept); 6] = [
        ("{type: bearer, token: {env: TOKEN}}", |request| {
            request.header("authorization") == Some("Bearer open-sesame")
        }),
        ("{type: http_basic, username: ali, password: {env: PASSWORD}}", |request| {
            request.header("authorization") == Some("Basic YWxpOmh1c2ggaHVzaA==")
        }),
        ("{type: api_key, name: X-Key, api_key: {env: TOKEN}}", |request| {
            request.header("x-key") == Some("open-sesame")
        }),
        ("{type: api_key, name: key, location: query, api_key: {env: PASSWORD}}", |request| {
            request.query.get("key").map(String::as_str) == Some("hush hush")
        }),
        ("{type: api_key, name: sid, location: cookie, api_key: {env: TOKEN}}", |request| {
            request.header("cookie") == Some("sid=open-sesame")
        }),
        ("{type: none}", |request| request.header("authorization").is_none()),
    ];
    for (auth, accept) in cases {
        let server = guarded(accept).await;
        let items = read_all(&server.source(&with_auth(auth))).await;
        assert_eq!(items.unwrap_or_else(|error| panic!("{auth}: {error}")).len(), 1);
    }
}

#[tokio::test]
async fn refused_credentials_are_an_auth_error_without_the_secret() {
    for (auth, secret) in [
        ("{type: bearer, token: {env: TOKEN}}", "open-sesame"),
        ("{type: api_key, name: key, location: query, api_key: {env: TOKEN}}", "open-sesame"),
    ] {
        let server = Server::start(|_| status(401, "bad key open-sesame")).await;
        let error = read_all(&server.source(&with_auth(auth))).await.unwrap_err();
        assert_eq!((error.class(), server.count()), (ErrorClass::Auth, 1));
        let text = format!("{error} {error:?}");
        assert!(!text.contains(secret) && text.contains("***"), "{text}");
    }
}

#[tokio::test]
async fn missing_secret_is_an_auth_error() {
    let server = Server::fixed(json!({})).await;
    let error =
        server.try_source(&with_auth("{type: bearer, token: {env: NOT_SET}}"), quick()).err().unwrap();
    assert_eq!(error.class(), ErrorClass::Auth);
    assert!(error.to_string().contains("`NOT_SET`"), "{error}");
}

/// A server whose tokens have numbers; only the current one is valid.
async fn token_server(token_at: fn(&ReceivedRequest) -> Option<String>) -> (Arc<Server>, Arc<AtomicU32>) {
    let current = Arc::new(AtomicU32::new(1));
    let valid = Arc::clone(&current);
    let server = Server::start(move |request| token_answer(request, &valid, token_at)).await;
    (server, current)
}

fn token_answer(
    request: &ReceivedRequest,
    valid: &AtomicU32,
    token_at: fn(&ReceivedRequest) -> Option<String>,
) -> Response {
    let current = format!("token-{}", valid.load(Ordering::SeqCst));
    match request.path.as_str() {
        "/token" => {
            let is_known = request.form.get("client_id").map(String::as_str) == Some("me")
                && request.form.get("client_secret").map(String::as_str) == Some("hush hush")
                && request.form.get("grant_type").map(String::as_str) == Some("client_credentials")
                && request.form.get("scope").map(String::as_str) == Some("read");
            if !is_known {
                return status(400, "{\"error\":\"invalid_client\"}");
            }
            json_response(&json!({ "access_token": current, "expires_in": 3600, "token_type": "Bearer" }))
        }
        "/login" => {
            if request.body != json!({ "user": "ali", "password": "hush hush" }) {
                return status(403, "wrong password");
            }
            json_response(&json!({ "session": { "token": current } }))
        }
        _ if token_at(request) == Some(current) => json_response(&json!({ "data": [record(1)] })),
        _ => status(401, "token expired"),
    }
}

fn bearer(request: &ReceivedRequest) -> Option<String> {
    request.header("authorization")?.strip_prefix("Bearer ").map(str::to_owned)
}

const OAUTH: &str = "{type: oauth2_client_credentials, access_token_url: /token, client_id: me, \
    client_secret: {env: PASSWORD}, access_token_request_data: {scope: read}}";
const LOGIN: &str =
    "{type: login, path: /login, json: {user: ali, password: {env: PASSWORD}}, token_path: session.token";

#[tokio::test]
async fn oauth_token_is_requested_once_and_renewed_after_401() {
    let (server, current) = token_server(bearer).await;
    let source = server.source(&with_auth(OAUTH));
    read_all(&source).await.unwrap();
    read_all(&source).await.unwrap();
    assert_eq!(server.count(), 3, "one token and two pages");
    current.store(2, Ordering::SeqCst);
    read_all(&source).await.unwrap();
    assert_eq!(server.count(), 6, "the refused page, a new token, the page");
}

#[tokio::test]
async fn oauth_token_of_another_host_is_used() {
    let (tokens, _) = token_server(bearer).await;
    let items = guarded(|request| bearer(request).as_deref() == Some("token-1")).await;
    let auth = OAUTH.replace("/token,", &format!("'{}/token',", tokens.base));
    read_all(&items.source(&with_auth(&auth))).await.unwrap();
    assert_eq!((tokens.count(), items.count()), (1, 1));
}

#[tokio::test]
async fn login_token_is_sent_where_the_definition_says() {
    type TokenAt = fn(&ReceivedRequest) -> Option<String>;
    let cases: [(&str, TokenAt); 4] = [
        ("}", bearer),
        (", location: header, name: X-Session}", |request| request.header("x-session").map(str::to_owned)),
        (", location: query, name: session}", |request| request.query.get("session").cloned()),
        (", location: cookie, name: sid}", |request| {
            request.header("cookie")?.strip_prefix("sid=").map(str::to_owned)
        }),
    ];
    for (location, token_at) in cases {
        let (server, current) = token_server(token_at).await;
        let source = server.source(&with_auth(&format!("{LOGIN}{location}")));
        read_all(&source).await.unwrap_or_else(|error| panic!("{location}: {error}"));
        current.store(2, Ordering::SeqCst);
        read_all(&source).await.unwrap();
        assert_eq!(server.count(), 5, "{location}");
    }
}

#[tokio::test]
async fn login_token_is_a_graphql_variable() {
    let (server, _) =
        token_server(|request| request.body["variables"]["token"].as_str().map(str::to_owned)).await;
    let text = with_auth(&format!("{LOGIN}, location: variable, name: token}}"))
        .replace("path: /items, ", "path: /items, graphql: {query: 'query { x }'}, ");
    read_all(&server.source(&text)).await.unwrap();
}

#[tokio::test]
async fn second_refusal_is_an_auth_error() {
    let (server, _) = token_server(|_| None).await;
    let error = read_all(&server.source(&with_auth(OAUTH))).await.unwrap_err();
    assert_eq!((error.class(), server.count()), (ErrorClass::Auth, 4));
    assert!(!format!("{error:?}").contains("token-1"), "{error:?}");
}

#[tokio::test]
async fn wrong_client_secret_is_an_auth_error() {
    let (server, _) = token_server(bearer).await;
    let error = read_all(&server.source(&with_auth(&OAUTH.replace("PASSWORD", "TOKEN")))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Auth);
    assert!(error.to_string().contains("invalid_client"), "{error}");
}

#[tokio::test]
async fn api_key_in_the_query_is_removed_from_stored_next_urls() {
    let server = Server::start(|request| {
        let next =
            (!request.query.contains_key("page")).then(|| format!("/items?{}&page=2", request.raw_query));
        json_response(&json!({ "data": [record(request.query.len())], "next": next }))
    })
    .await;
    let auth = "{type: api_key, name: key, location: query, api_key: {env: TOKEN}}";
    let text = with_auth(auth).replace("single_page", "{type: json_link, next_url_path: next}");
    let source = server.source(&text);
    let page = source.page(&RecordQuery::default(), &Place::default(), 10).await.unwrap();
    let token = page.next.clone().unwrap().token.unwrap();
    assert!(!token.contains("open-sesame") && token.ends_with("/items?page=2"), "{token}");
    source.page(&RecordQuery::default(), &page.next.unwrap(), 10).await.unwrap();
    assert_eq!(server.last().query["key"], "open-sesame");
}
