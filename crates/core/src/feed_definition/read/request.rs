//! Parses the sections `client` and `resource`, and other requests.

use super::{auth, json_of, name, param_text, path};
use crate::definition::error::{DefinitionErrors, shown};
use crate::definition::fields::Fields;
use crate::feed_definition::collect_secrets;
use crate::feed_definition::path::JsonPath;
use crate::feed_definition::request::{Auth, Body, ClientSpec, Method, RequestSpec, Resource};
use crate::limits::{
    FEED_BODY_BYTES_MAX, FEED_KEY_PARTS_MAX, FEED_PARAMS_MAX, FEED_PATH_BYTES_MAX, FEED_RATE, FEED_RATE_MAX,
    FEED_TIMEOUT_SECS, FEED_TIMEOUT_SECS_MAX, FEED_URL_BYTES_MAX,
};
use std::collections::BTreeMap;

pub(in super::super) const CLIENT_KEYS: [&str; 6] =
    ["base_url", "headers", "timeout", "rate", "budget", "auth"];
pub(in super::super) const RESOURCE_KEYS: [&str; 7] =
    ["path", "method", "params", "json", "graphql", "data_selector", "primary_key"];
pub(in super::super) const GRAPHQL_KEYS: [&str; 2] = ["query", "variables"];

pub(super) const METHODS: [(&str, Method); 2] = [("GET", Method::Get), ("POST", Method::Post)];

/// Headers that the client sets itself.
const RESERVED_HEADERS: [&str; 7] =
    ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "user-agent"];
/// Headers that contain secrets.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

pub(super) fn client(fields: &Fields, errors: &mut DefinitionErrors) -> Option<ClientSpec> {
    fields.check(&CLIENT_KEYS, errors);
    fields.require("base_url", "write `base_url: https://HOST`", errors);
    let base_url = url(fields, "base_url", errors);
    let headers = headers(fields, errors);
    let rate = fields.number("rate", 0, FEED_RATE_MAX.into(), errors);
    let auth = if fields.has("auth") {
        fields.child("auth", errors).and_then(|fields| auth::read(&fields, errors))
    } else {
        Some(Auth::None)
    };
    Some(ClientSpec {
        base_url: base_url?,
        headers,
        timeout_secs: fields.secs("timeout", 1, FEED_TIMEOUT_SECS_MAX, errors).unwrap_or(FEED_TIMEOUT_SECS),
        rate: rate.and_then(|rate| rate.try_into().ok()).unwrap_or(FEED_RATE),
        budget: name(fields, "budget", errors),
        auth: auth?,
    })
}

/// Returns an absolute URL without credentials, query and fragment.
pub(super) fn url(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text(key, FEED_URL_BYTES_MAX, errors)?;
    let at = fields.at(key);
    // The messages do not quote the URL, because it may contain a password.
    let Ok(parsed) = url::Url::parse(&text) else {
        errors.hint(at, format!("`{key}` is not a URL"), "write it as https://HOST/PATH");
        return None;
    };
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none_or(str::is_empty) {
        errors.hint(at, format!("`{key}` must use https or http"), "write it as https://HOST/PATH");
        return None;
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        errors.hint(at, format!("`{key}` contains credentials"), "use `auth` with `{env: VARIABLE}`");
        return None;
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        errors.hint(at, format!("`{key}` contains a query or a fragment"), "write parameters below `params`");
        return None;
    }
    has_no_placeholder(fields, key, &text, errors).then_some(text)
}

fn headers(fields: &Fields, errors: &mut DefinitionErrors) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    for (name, at, node) in fields.entries("headers", FEED_PARAMS_MAX, errors) {
        let lower = name.to_ascii_lowercase();
        if !is_header_name(&name) {
            errors.add(at, format!("`{}` is not a valid header name", shown(&name)));
        } else if SECRET_HEADERS.contains(&lower.as_str()) {
            let message = format!("the header `{}` must not be written into the definition", shown(&name));
            errors.hint(at, message, "use `auth` with `{env: VARIABLE}`");
        } else if RESERVED_HEADERS.contains(&lower.as_str()) {
            errors.hint(at, format!("the client sets the header `{}` itself", shown(&name)), "remove it");
        } else if let Some(value) = param_text(&name, &node, errors) {
            if value.chars().any(char::is_control) {
                errors.add(node.at, format!("the header `{}` contains a control character", shown(&name)));
                continue;
            }
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns whether a text can be the name of a header.
pub(super) fn is_header_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.len() <= 256 && name.bytes().all(fits)
}

/// Returns the name of a header.
pub(super) fn header_name(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text(key, 256, errors)?;
    if is_header_name(&text) {
        return Some(text);
    }
    errors.add(fields.at(key), format!("`{}` is not a valid header name", shown(&text)));
    None
}

pub(super) fn resource(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Resource> {
    fields.check(&RESOURCE_KEYS, errors);
    fields.require("path", "write `path: /ITEMS`", errors);
    fields.require("primary_key", "write `primary_key: id`, the path of the id in a record", errors);
    let request = request(fields, errors);
    let data_selector = path(fields, "data_selector", errors);
    let primary_key = primary_key(fields, errors);
    Some(Resource { request: request?, data_selector, primary_key: primary_key? })
}

/// Reads the keys `path`, `method`, `params`, `json` and `graphql`.
pub(super) fn request(fields: &Fields, errors: &mut DefinitionErrors) -> Option<RequestSpec> {
    let path = request_path(fields, "path", errors);
    let mut params = BTreeMap::new();
    for (name, _, node) in fields.entries("params", FEED_PARAMS_MAX, errors) {
        if let Some(value) = param_text(&name, &node, errors) {
            params.insert(name, value);
        }
    }
    let body = body(fields, errors);
    let default = if body.is_some() { Method::Post } else { Method::Get };
    let method = fields.word("method", &METHODS, errors).unwrap_or(default);
    if method == Method::Get && body.is_some() {
        errors.hint(fields.at("method"), "a GET request has no body", "write `method: POST`");
    }
    if let Some(Body::Json(json) | Body::Graphql { variables: json, .. }) = &body {
        let mut names = std::collections::BTreeSet::new();
        collect_secrets(json, &mut names);
        if !names.is_empty() {
            let at = fields.at(if fields.has("json") { "json" } else { "graphql" });
            errors.hint(
                at,
                "only the login request may contain secrets",
                "use `auth` with `{env: VARIABLE}`",
            );
        }
    }
    Some(RequestSpec { path: path?, method, params, body })
}

/// Returns a path below the base URL.
pub(super) fn request_path(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = path_below_base(fields, key, errors)?;
    has_no_placeholder(fields, key, &text, errors).then_some(text)
}

/// Returns a path below the base URL that may contain `{id}`.
pub(super) fn path_with_id(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = path_below_base(fields, key, errors)?;
    has_no_placeholder(fields, key, &text.replace("{id}", ""), errors).then_some(text)
}

/// Checks that a path or a URL contains no braces. They would be requested as they are, in percent encoding.
fn has_no_placeholder(fields: &Fields, key: &str, text: &str, errors: &mut DefinitionErrors) -> bool {
    let Some(start) = text.find(['{', '}']) else { return true };
    let end = text[start..].find('}').map(|length| start + length + 1);
    let message = match end.filter(|_| text[start..].starts_with('{')) {
        Some(end) => format!("`{key}` contains the unknown placeholder `{}`", shown(&text[start..end])),
        None => format!("`{key}` contains a single brace"),
    };
    errors.hint(fields.at(key), message, "write the value itself; a brace in a URL is `%7B` or `%7D`");
    false
}

fn path_below_base(fields: &Fields, key: &str, errors: &mut DefinitionErrors) -> Option<String> {
    let text = fields.text(key, FEED_URL_BYTES_MAX, errors)?;
    let hint = if text.contains("://") || text.starts_with("//") {
        "write the path only; the host belongs to `client.base_url`"
    } else if text.contains('?') || text.contains('#') {
        "write parameters below `params`"
    } else if text.split('/').any(|part| part == "..") || text.chars().any(char::is_control) {
        "write it as `/items`"
    } else {
        return Some(text);
    };
    errors.hint(fields.at(key), format!("`{}` is not a path below the base URL", shown(&text)), hint);
    None
}

/// Reads `json` or `graphql`.
pub(super) fn body(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Body> {
    if fields.has("json") && fields.has("graphql") {
        errors.hint(fields.at("graphql"), "`json` and `graphql` exclude each other", "remove one of them");
        return None;
    }
    let (key, body) = if fields.has("json") {
        ("json", Body::Json(json_of(fields.node("json")?)))
    } else if fields.has("graphql") {
        let inner = fields.child("graphql", errors)?;
        inner.check(&GRAPHQL_KEYS, errors);
        inner.require("query", "write the GraphQL document as `query: |`", errors);
        let query = inner.text("query", FEED_BODY_BYTES_MAX, errors)?;
        let variables = inner.node("variables").map_or_else(|| serde_json::json!({}), json_of);
        if !variables.is_object() {
            errors.add(inner.at("variables"), "`variables` must be a mapping");
            return None;
        }
        ("graphql", Body::Graphql { query, variables })
    } else {
        return None;
    };
    let bytes = body.document().to_string().len();
    if bytes > FEED_BODY_BYTES_MAX {
        errors.add(
            fields.at(key),
            format!("`{key}` is {bytes} bytes long; at most {FEED_BODY_BYTES_MAX} are allowed"),
        );
        return None;
    }
    Some(body)
}

fn primary_key(fields: &Fields, errors: &mut DefinitionErrors) -> Option<Vec<JsonPath>> {
    let texts = fields.texts("primary_key", FEED_KEY_PARTS_MAX, FEED_PATH_BYTES_MAX, errors)?;
    let mut paths: Vec<JsonPath> = Vec::with_capacity(texts.len());
    for text in texts {
        match text.parse::<JsonPath>() {
            Ok(path) if !path.is_root() && !path.has_each() && !paths.contains(&path) => paths.push(path),
            Ok(_) => {
                let message = format!("the path `{}` must select one value, and only once", shown(&text));
                errors.add(fields.at("primary_key"), message);
                return None;
            }
            Err(error) => {
                errors.add(fields.at("primary_key"), format!("the path `{}` {error}", shown(&text)));
                return None;
            }
        }
    }
    Some(paths)
}
