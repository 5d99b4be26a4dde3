//! Parses the section `auth`.

use super::request::{METHODS, body, header_name, request_path, url};
use super::{check_variable, param_text, secret, tag, value_path};
use crate::Json;
use crate::definition::error::{DefinitionErrors, Position};
use crate::definition::fields::Fields;
use crate::definition::yaml::Value;
use crate::feed_definition::request::{
    Auth, Body, Credential, KeyLocation, LoginSpec, Method, OauthSpec, TokenLocation,
};
use crate::feed_definition::secret_in;
use crate::limits::{FEED_PARAM_BYTES_MAX, FEED_PARAMS_MAX};

pub(in super::super) const TYPES: [(&str, &[&str]); 6] = [
    ("none", &[]),
    ("bearer", &["token"]),
    ("http_basic", &["username", "password"]),
    ("api_key", &["name", "location", "api_key"]),
    (
        "oauth2_client_credentials",
        &[
            "access_token_url",
            "client_id",
            "client_secret",
            "access_token_request_data",
            "default_token_expiration",
        ],
    ),
    ("login", &["path", "method", "json", "graphql", "token_path", "location", "name", "lifetime"]),
];

/// Longest lifetime of a token.
const LIFETIME_SECS_MAX: u32 = 365 * 86_400;

const LOCATIONS: [(&str, KeyLocation); 3] =
    [("header", KeyLocation::Header), ("query", KeyLocation::Query), ("cookie", KeyLocation::Cookie)];

#[derive(Clone, Copy)]
enum Location {
    Bearer,
    Header,
    Query,
    Cookie,
    Variable,
}

const TOKEN_LOCATIONS: [(&str, Location); 5] = [
    ("bearer", Location::Bearer),
    ("header", Location::Header),
    ("query", Location::Query),
    ("cookie", Location::Cookie),
    ("variable", Location::Variable),
];

pub(super) fn read(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Auth> {
    let word = tag(fields, "`auth`", &TYPES, errors)?;
    let mut need = |key: &str| fields.require(key, &format!("write `{key}: {{env: VARIABLE}}`"), errors);
    match word {
        "bearer" => {
            need("token");
            Some(Auth::Bearer { token: secret(fields, "token", errors)? })
        }
        "http_basic" => {
            need("username");
            need("password");
            let username = credential(fields, "username", errors);
            let password = secret(fields, "password", errors);
            Some(Auth::HttpBasic { username: username?, password: password? })
        }
        "api_key" => {
            need("api_key");
            fields.require("name", "write `name: X-Api-Key`, the header, parameter or cookie", errors);
            let location = fields.word("location", &LOCATIONS, errors).unwrap_or_default();
            let name = match location {
                KeyLocation::Query => fields.text("name", FEED_PARAM_BYTES_MAX, errors),
                KeyLocation::Header | KeyLocation::Cookie => header_name(fields, "name", errors),
            };
            let api_key = secret(fields, "api_key", errors);
            Some(Auth::ApiKey { name: name?, location, api_key: api_key? })
        }
        "oauth2_client_credentials" => oauth(fields, errors).map(Auth::Oauth2ClientCredentials),
        "login" => login(fields, errors).map(Auth::Login),
        _ => Some(Auth::None),
    }
}

/// Returns a plain text, or the name of a secret.
fn credential(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<Credential> {
    match fields.node(key)?.value {
        Value::Text(..) => fields.text(key, FEED_PARAM_BYTES_MAX, errors).map(Credential::Plain),
        Value::List(_) | Value::Map(_) => secret(fields, key, errors).map(Credential::Secret),
    }
}

fn oauth(fields: &Fields, errors: &mut DefinitionErrors) -> Option<OauthSpec> {
    fields.require("access_token_url", "write `access_token_url: https://HOST/token`", errors);
    fields.require("client_id", "write `client_id: ID` or `client_id: {env: VARIABLE}`", errors);
    fields.require("client_secret", "write `client_secret: {env: VARIABLE}`", errors);
    let is_absolute = fields.node("access_token_url").is_some_and(|node| match &node.value {
        Value::Text(text, _) => text.contains("://"),
        Value::List(_) | Value::Map(_) => false,
    });
    let access_token_url = if is_absolute {
        url(fields, "access_token_url", errors)
    } else {
        request_path(fields, "access_token_url", errors)
    };
    let client_id = credential(fields, "client_id", errors);
    let client_secret = secret(fields, "client_secret", errors);
    let mut data = std::collections::BTreeMap::new();
    for (name, at, node) in fields.entries("access_token_request_data", FEED_PARAMS_MAX, errors) {
        if matches!(name.as_str(), "grant_type" | "client_id" | "client_secret") {
            errors.hint(at, format!("the client sets `{name}` itself"), "remove it");
        } else if let Some(value) = param_text(&name, &node, errors) {
            data.insert(name, value);
        }
    }
    Some(OauthSpec {
        access_token_url: access_token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        access_token_request_data: data,
        default_token_expiration_secs: fields.secs("default_token_expiration", 1, LIFETIME_SECS_MAX, errors),
    })
}

fn login(fields: &Fields, errors: &mut DefinitionErrors) -> Option<LoginSpec> {
    fields.require("path", "write `path: /login`", errors);
    fields.require("token_path", "write `token_path: token`, the path of the token in the answer", errors);
    let path = request_path(fields, "path", errors);
    let token_path = value_path(fields, "token_path", errors);
    let body = body(fields, errors);
    if let Some(Body::Json(json) | Body::Graphql { variables: json, .. }) = &body {
        check_secrets(json, fields.at, errors);
    }
    let method = fields.word("method", &METHODS, errors).unwrap_or(Method::Post);
    let location = fields.word("location", &TOKEN_LOCATIONS, errors).unwrap_or(Location::Bearer);
    let name = fields.text("name", FEED_PARAM_BYTES_MAX, errors);
    let location = match (location, name) {
        (Location::Bearer, _) => Some(TokenLocation::Bearer),
        (Location::Header, Some(_)) => header_name(fields, "name", errors).map(TokenLocation::Header),
        (Location::Query, Some(name)) => Some(TokenLocation::Query(name)),
        (Location::Cookie, Some(_)) => header_name(fields, "name", errors).map(TokenLocation::Cookie),
        (Location::Variable, Some(name)) => Some(TokenLocation::Variable(name)),
        (Location::Header | Location::Query | Location::Cookie | Location::Variable, None) => {
            fields.require("name", "write `name:` of the header, parameter, cookie or variable", errors);
            None
        }
    };
    Some(LoginSpec {
        path: path?,
        method,
        body,
        token_path: token_path?,
        location: location?,
        lifetime_secs: fields.secs("lifetime", 1, LIFETIME_SECS_MAX, errors),
    })
}

fn check_secrets(json: &Json, at: Position, errors: &mut DefinitionErrors) {
    if let Some(name) = secret_in(json) {
        check_variable(name, at, errors);
        return;
    }
    match json {
        Json::Array(items) => items.iter().for_each(|item| check_secrets(item, at, errors)),
        Json::Object(entries) => entries.values().for_each(|value| check_secrets(value, at, errors)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
