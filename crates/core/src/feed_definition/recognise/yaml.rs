//! The definition of a recognised API as YAML text.

use super::Recognition;
use crate::feed_definition::paging::{Paginator, TotalLocation};
use crate::feed_definition::request::ParamTarget;
use crate::feed_definition::target::ColumnSource;
use std::fmt::Write as _;
use url::Url;

/// Writes a scalar as a quoted YAML text where it needs quotes.
fn quoted(text: &str) -> String {
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "_-./[]".contains(symbol);
    let is_safe = text
        .starts_with(|symbol: char| symbol.is_ascii_alphabetic() || symbol == '/' || symbol == '_')
        && text.chars().all(is_plain)
        && !matches!(text, "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    if is_safe {
        return text.to_owned();
    }
    let mut quoted = String::new();
    crate::feed_definition::value::write_text(text, &mut quoted);
    quoted
}

/// Headers and authentication of the requests to an API. Secrets are names of environment variables.
#[derive(Debug, Clone, Default)]
pub struct ClientKeys {
    pub headers: Vec<(String, String)>,
    pub auth: TryAuth,
}

/// Authentication of an API whose definition is not written yet.
#[derive(Debug, Clone, Default)]
pub enum TryAuth {
    #[default]
    None,
    /// Variable with the bearer token.
    Bearer(String),
    /// User name, and the variable with the password.
    Basic(String, String),
    /// Header, and the variable with its value.
    ApiKey(String, String),
}

impl ClientKeys {
    /// Returns the definition of one request to a URL, without a paginator and with a placeholder as its table.
    pub fn request_yaml(&self, url: &Url) -> String {
        let mut text = String::from("version: 1\nfeed: try\nclient:\n");
        let mut base = url.clone();
        base.set_query(None);
        base.set_fragment(None);
        let _ = writeln!(text, "  base_url: {}", quoted(base.as_str()));
        self.write(&mut text);
        text + "resource: {path: /, primary_key: id, data_selector: data}\npaginator: single_page\n\
                into: {table: public.try}\n"
    }

    fn write(&self, text: &mut String) {
        if !self.headers.is_empty() {
            text.push_str("  headers:\n");
        }
        for (name, value) in &self.headers {
            let _ = writeln!(text, "    {}: {}", quoted(name), quoted(value));
        }
        match &self.auth {
            TryAuth::None => {}
            TryAuth::Bearer(variable) => {
                let _ = writeln!(text, "  auth:\n    type: bearer\n    token: {{env: {}}}", quoted(variable));
            }
            TryAuth::Basic(username, variable) => {
                let (username, variable) = (quoted(username), quoted(variable));
                let _ = writeln!(text, "  auth:\n    type: http_basic\n    username: {username}");
                let _ = writeln!(text, "    password: {{env: {variable}}}");
            }
            TryAuth::ApiKey(header, variable) => {
                let (header, variable) = (quoted(header), quoted(variable));
                let _ = writeln!(text, "  auth:\n    type: api_key\n    name: {header}");
                let _ = writeln!(text, "    api_key: {{env: {variable}}}");
            }
        }
    }
}

impl Recognition {
    /// Returns the definition of a feed that reads the recognised API from `url` into `table`.
    ///
    /// Undecided parts are comments. The result parses if the records and their id were found.
    pub fn to_yaml(&self, feed: &str, url: &Url, table: &str, client: &ClientKeys) -> String {
        let mut text = String::new();
        for question in &self.undecided {
            let _ = writeln!(text, "# undecided: {question}");
        }
        let _ = writeln!(text, "version: 1\nfeed: {}\nclient:", quoted(feed));
        let _ = writeln!(text, "  base_url: {}", quoted(&url.origin().ascii_serialization()));
        client.write(&mut text);
        let _ = writeln!(text, "resource:\n  path: {}", quoted(url.path()));
        self.write_params(url, &mut text);
        if let Some(path) = &self.data_selector {
            let _ = writeln!(text, "  data_selector: {}", quoted(&path.to_string()));
        }
        let key = self.primary_key.as_ref().map_or_else(|| "id".to_owned(), ToString::to_string);
        let _ = writeln!(text, "  primary_key: {}", quoted(&key));
        if let Some(paginator) = &self.paginator {
            write_paginator(paginator, &mut text);
        }
        match &self.total {
            Some(TotalLocation::Path(path)) => {
                let _ = writeln!(text, "trust:\n  total_path: {}", quoted(&path.to_string()));
            }
            Some(TotalLocation::Header(name)) => {
                let _ = writeln!(text, "trust:\n  total_header: {}", quoted(name));
            }
            None => {}
        }
        self.write_target(table, &mut text);
        text
    }

    /// Writes the query parameters of the URL that do not belong to the paginator.
    fn write_params(&self, url: &Url, text: &mut String) {
        let mut used: Vec<String> = Vec::new();
        if let Some(paginator) = &self.paginator {
            for (_, value) in settings(paginator) {
                used.push(value);
            }
        }
        let params: Vec<_> = url.query_pairs().filter(|(key, _)| !used.contains(&key.to_string())).collect();
        if !params.is_empty() {
            text.push_str("  params:\n");
        }
        for (key, value) in params {
            let _ = writeln!(text, "    {}: {}", quoted(&key), quoted(&value));
        }
    }

    fn write_target(&self, table: &str, text: &mut String) {
        let _ = writeln!(text, "into:\n  table: {}", quoted(table));
        let key = self.primary_key.as_ref();
        let is_key =
            |source: &ColumnSource| key.is_some_and(|key| *source == ColumnSource::Path(key.clone()));
        if let Some(column) = self.columns.iter().find(|column| is_key(&column.source)) {
            let _ = writeln!(text, "  primary_key: {}", column.name);
        }
        if !self.columns.is_empty() {
            text.push_str("  columns:\n");
        }
        for column in &self.columns {
            let path = match &column.source {
                ColumnSource::Path(path) => path.to_string(),
                ColumnSource::Cel(_) | ColumnSource::Constant(_) => continue,
            };
            // A sample cannot show that a value is never missing, except for the id.
            let nullable = if is_key(&column.source) { ", nullable: false" } else { "" };
            let _ = writeln!(
                text,
                "    {}: {{path: {}, type: {}{nullable}}}",
                column.name,
                flow_quoted(&path),
                column.column_type
            );
        }
    }
}

/// Quotes a path inside `{…}`, where brackets have a meaning.
fn flow_quoted(text: &str) -> String {
    if text.contains(['[', ']', '{', '}', ',']) {
        let mut quoted = String::new();
        crate::feed_definition::value::write_text(text, &mut quoted);
        return quoted;
    }
    quoted(text)
}

/// Returns the keys of a paginator that are texts.
fn settings(paginator: &Paginator) -> Vec<(String, String)> {
    let target = |key: &str, target: &ParamTarget| match target {
        ParamTarget::Query(name) => (format!("{key}_param"), name.clone()),
        ParamTarget::Body(path) => (format!("{key}_body_path"), path.to_string()),
    };
    let limit = |limit: &Option<ParamTarget>| limit.as_ref().map(|limit| target("limit", limit));
    let mut found = Vec::new();
    match paginator {
        Paginator::SinglePage | Paginator::Auto { .. } => {}
        Paginator::PageNumber { page, size, .. } => {
            found.push(target("page", page));
            found.extend(limit(size));
        }
        Paginator::Offset { offset, limit: size, .. } => {
            found.push(target("offset", offset));
            found.extend(limit(size));
        }
        Paginator::Cursor { cursor_path, cursor, limit: size, .. } => {
            found.push(("cursor_path".into(), cursor_path.to_string()));
            found.push(target("cursor", cursor));
            found.extend(limit(size));
        }
        Paginator::JsonLink { next_url_path, limit: size, .. } => {
            found.push(("next_url_path".into(), next_url_path.to_string()));
            found.extend(limit(size));
        }
        Paginator::HeaderCursor { cursor_key, cursor, limit: size, .. } => {
            found.push(("cursor_key".into(), cursor_key.clone()));
            found.push(target("cursor", cursor));
            found.extend(limit(size));
        }
        Paginator::HeaderUrl { header, limit: size, .. } => {
            found.push(("header".into(), header.clone()));
            found.extend(limit(size));
        }
        Paginator::HeaderLink { links_next_key, limit: size, .. } => {
            found.push(("links_next_key".into(), links_next_key.clone()));
            found.extend(limit(size));
        }
        Paginator::Keyset { key_path, cursor, limit: size, .. } => {
            found.push(("key_path".into(), key_path.to_string()));
            found.push(target("cursor", cursor));
            found.extend(limit(size));
        }
        Paginator::GraphqlOffset { offset_variable, limit_variable, .. } => {
            found.push(("offset_variable".into(), offset_variable.clone()));
            found.push(("limit_variable".into(), limit_variable.clone()));
        }
        Paginator::GraphqlConnection { connection_path, cursor_variable, limit_variable, .. } => {
            found.push(("connection_path".into(), connection_path.to_string()));
            found.push(("cursor_variable".into(), cursor_variable.clone()));
            found.push(("limit_variable".into(), limit_variable.clone()));
        }
    }
    found
}

fn write_paginator(paginator: &Paginator, text: &mut String) {
    let _ = writeln!(text, "paginator:\n  type: {}", paginator.word());
    for (key, value) in settings(paginator) {
        let _ = writeln!(text, "  {key}: {}", quoted(&value));
    }
    if let Paginator::PageNumber { base_page, .. } = paginator {
        let _ = writeln!(text, "  base_page: {base_page}");
    }
    if let Some(size) = paginator.page_size() {
        let _ = writeln!(text, "  limit: {size}");
    }
}
