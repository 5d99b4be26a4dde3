//! The API reference page, rendered by this server without external assets.

use crate::endpoint::{Endpoint, Permission};
use crate::openapi::example::{curl, resolve};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::OnceLock;
use tidemill_core::digest;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/docs", Permission::Anyone, docs)
            .public()
            .describe("server", "Show the API reference as a web page")
            .responds_text(200, "An HTML page", "text/html"),
    ]
}

const STYLE: &str = include_str!("docs/style.css");

/// URL of this server as the client sees it. A `Host` header that is not a host name is ignored.
fn server_url(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let plain = |host: &&str| {
        host.len() <= 255
            && !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte))
    };
    let scheme = match headers.get("x-forwarded-proto") {
        Some(proto) if proto == "https" => "https",
        Some(_) | None => "http",
    };
    format!("{scheme}://{}", host.filter(plain).unwrap_or("localhost"))
}

/// Placeholder for the server's URL in the cached page.
const URL_PLACEHOLDER: &str = "http://here.invalid";

/// Returns the page with the given server URL. It is rendered once, because unauthenticated clients can request it.
fn page_at(url: &str) -> String {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| page(crate::document(), URL_PLACEHOLDER)).replace(URL_PLACEHOLDER, url)
}

async fn docs(headers: HeaderMap) -> Response {
    let page = page_at(&server_url(&headers));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        base64(&digest::sha256(STYLE.as_bytes()))
    );
    let mut response = Html(page).into_response();
    let mut set = |name: HeaderName, value: Result<HeaderValue, _>| {
        if let Ok(value) = value {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_SECURITY_POLICY, HeaderValue::from_str(&policy));
    set(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_str("nosniff"));
    set(header::REFERRER_POLICY, HeaderValue::from_str("no-referrer"));
    response
}

/// Encodes a digest for the Content-Security-Policy header.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        for position in 0..4 {
            let index = (bits >> (18 - 6 * position)) & 63;
            text.push(if position <= chunk.len() { char::from(LETTERS[index as usize]) } else { '=' });
        }
    }
    text
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

/// Renders the whole page.
fn page(document: &Value, url: &str) -> String {
    let mut html = String::new();
    let version = text(&document["info"]["version"]);
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Tidemill API</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\
         <h1>Tidemill API {version}</h1><p>As JSON: <a href=\"/openapi.json\">/openapi.json</a>. \
         If the server requires a token, set <code>TIDEMILL_TOKEN</code> before you paste an \
         example.</p><nav>"
    );
    let tags: Vec<(String, String)> = document["tags"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tag| (text(&tag["name"]), text(&tag["description"])))
        .filter(|(name, _)| operations(document, name).next().is_some())
        .collect();
    for (name, _) in &tags {
        let _ = write!(html, "<a href=\"#{name}\">{name}</a> ");
    }
    html.push_str("</nav>");
    for (name, description) in &tags {
        let _ = write!(html, "<section id=\"{name}\"><h2>{name}</h2><p>{description}</p>");
        for (path, method, operation) in operations(document, name) {
            render_operation(&mut html, document, path, method, operation, url);
        }
        html.push_str("</section>");
    }
    html.push_str("</body></html>\n");
    html
}

/// Operations of a tag: path, method and description.
fn operations<'a>(
    document: &'a Value,
    tag: &str,
) -> impl Iterator<Item = (&'a String, &'a String, &'a Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let all = paths.flat_map(|(path, methods)| {
        methods.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    all.filter(move |(_, _, operation)| text(&operation["tags"][0]) == tag)
}

fn render_operation(
    html: &mut String,
    document: &Value,
    path: &str,
    method: &str,
    operation: &Value,
    url: &str,
) {
    let id = text(&operation["operationId"]);
    let _ = write!(
        html,
        "<article id=\"{id}\"><h3><b>{}</b> <code>{}</code></h3><p>{}. {}</p>",
        method.to_uppercase(),
        escape(path),
        text(&operation["summary"]),
        text(&operation["description"])
    );
    let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
    if !parameters.is_empty() {
        html.push_str("<table><caption>Parameters</caption>");
        for parameter in parameters {
            let location =
                format!("{}{}", text(&parameter["in"]), required_note(parameter["required"] == true));
            row(html, document, &text(&parameter["name"]), &location, parameter, &parameter["schema"]);
        }
        html.push_str("</table>");
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        html.push_str("<table><caption>Body</caption>");
        fields(html, document, body);
        html.push_str("</table>");
    }
    html.push_str("<table><caption>Responses</caption>");
    let mut error_statuses = Vec::new();
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        // Error responses are shared by all routes and rendered as one row.
        if answer["$ref"].is_string() {
            error_statuses.push(status.as_str());
            continue;
        }
        let content = answer["content"].as_object().and_then(|content| content.iter().next());
        let kind = content.map_or_else(String::new, |(media, content)| {
            if media == "application/json" { kind(document, &content["schema"]) } else { escape(media) }
        });
        let _ = write!(
            html,
            "<tr><td>{status}</td><td>{kind}</td><td>{}</td></tr>",
            text(&answer["description"])
        );
    }
    let _ = write!(
        html,
        "<tr><td>{}</td><td>Problem</td><td>The error response</td></tr>",
        escape(&error_statuses.join(", "))
    );
    let _ = write!(
        html,
        "</table><pre>{}</pre></article>",
        escape(&curl(document, path, method, operation, url))
    );
}

fn required_note(required: bool) -> &'static str {
    if required { ", required" } else { "" }
}

/// Renders one row per field of an object.
fn fields(html: &mut String, document: &Value, schema: &Value) {
    let schema = resolve(document, schema);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let note = if required.contains(&name.as_str()) { "required" } else { "" };
        row(html, document, &escape(name), note, field, field);
    }
}

fn row(html: &mut String, document: &Value, name: &str, note: &str, described: &Value, schema: &Value) {
    let _ = write!(
        html,
        "<tr><td><code>{name}</code></td><td>{note}</td><td>{}</td><td>{}</td></tr>",
        kind(document, schema),
        text(&described["description"])
    );
}

/// Short text for the type of a value.
fn kind(document: &Value, schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        let known = resolve(document, schema)["enum"].as_array();
        let words = known.map(|words| words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
        return words.map_or_else(|| escape(name), |words| escape(&format!("one of {words}")));
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let kinds: Vec<String> = choices.iter().map(|choice| kind(document, choice)).collect();
        return kinds.join(" or ");
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec!["any"],
    };
    let mut words = escape(&kinds.join(" or "));
    if kinds.contains(&"array") {
        let _ = write!(words, " of {}", kind(document, &schema["items"]));
    }
    if let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        let _ = write!(words, ", {least} to {most}");
    }
    if let Some(format) = schema["format"].as_str().filter(|format| ["date-time", "uuid"].contains(format)) {
        let _ = write!(words, " ({format})");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn page_lists_every_operation_and_loads_no_external_assets() {
        let page = page_at("http://localhost:8080");
        assert_eq!(
            page,
            super::page(crate::document(), "http://localhost:8080"),
            "the cached page equals a fresh one for the same URL"
        );
        assert_ne!(page, page_at("http://mill.example"));
        for endpoint in crate::endpoints() {
            let heading = format!("<b>{}</b> <code>{}</code>", endpoint.method, endpoint.path);
            assert!(page.contains(&heading), "{heading}");
        }
        for external in ["src=", "@import", "url(", "<script", "<link", "href=\"http"] {
            assert!(!page.contains(external), "{external}");
        }
    }

    #[test]
    fn markup_in_the_document_is_escaped() {
        let mut document = crate::document().clone();
        document["paths"]["/v1/runs"]["post"]["summary"] = json!("<script>alert('1')</script>");
        let page = page(&document, "http://localhost");
        assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"));
    }

    #[test]
    fn invalid_host_header_is_not_shown() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("a'b; rm -rf /"));
        assert_eq!(server_url(&headers), "http://localhost");
        headers.insert(header::HOST, HeaderValue::from_static("[::1]:8080"));
        assert_eq!(server_url(&headers), "http://[::1]:8080");
    }

    #[test]
    fn digests_are_encoded_as_base64() {
        assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
        assert_eq!(base64(b"any carnal pleasu"), "YW55IGNhcm5hbCBwbGVhc3U=");
        assert_eq!(base64(b"any carnal pleasur"), "YW55IGNhcm5hbCBwbGVhc3Vy");
    }
}
