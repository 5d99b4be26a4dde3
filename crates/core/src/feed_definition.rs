//! Feed definitions: a paged API and the table that receives its records, described in one YAML file.
//!
//! Everything here is pure: the parser, paths and casts, type inference, pagination, and the recognition of an unknown
//! API from one answer. The HTTP client is `RestSource` in the crate `tidemill-feeds`.

pub mod cast;
mod check;
pub mod infer;
mod key_order;
pub mod lost_column;
pub mod number;
pub mod paginate;
pub mod paging;
pub mod path;
pub mod query;
mod read;
pub mod recognise;
pub mod request;
pub mod schema;
pub mod target;
pub mod value;

pub use cast::{CastError, ColumnValue, cast};
pub use infer::{add_columns, infer_columns};
pub use key_order::keys_rise;
pub use paginate::{Answer, NextPage, PageRequest, PaginationError, Place, next_page, request_page};
pub use paging::{
    Deletes, EndRule, Incremental, Lookup, PageAccess, Paginator, Partition, TotalLocation, Trust,
};
pub use path::JsonPath;
pub use query::{CursorValue, QueryError, QueryRange, RecordQuery};
pub use read::{ExpressionCheck, parse, parse_with};
pub use recognise::{ClientKeys, Recognition, TryAuth, recognise};
pub use request::{
    Auth, Body, ClientSpec, Credential, Method, Param, ParamTarget, ParamValue, RequestSpec, Resource,
    SecretName,
};
pub use target::{Column, ColumnError, ColumnSource, ColumnType, TableName, Target};
pub use value::JsonValue;

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The definition of a feed that has passed all checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedDefinition {
    /// Name of the feed.
    pub feed: String,
    pub client: ClientSpec,
    pub resource: Resource,
    pub paginator: Paginator,
    pub incremental: Option<Incremental>,
    pub partition: Partition,
    pub trust: Trust,
    pub deletes: Deletes,
    pub into: Target,
}

impl FeedDefinition {
    /// Returns the names of all environment variables that contain secrets of the feed.
    pub fn secret_names(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        match &self.client.auth {
            Auth::None => {}
            Auth::Bearer { token } => {
                names.insert(token.env.as_str());
            }
            Auth::ApiKey { api_key, .. } => {
                names.insert(api_key.env.as_str());
            }
            Auth::HttpBasic { username, password } => {
                names.extend(username.secret());
                names.insert(password.env.as_str());
            }
            Auth::Oauth2ClientCredentials(oauth) => {
                names.extend(oauth.client_id.secret());
                names.insert(oauth.client_secret.env.as_str());
            }
            Auth::Login(login) => match &login.body {
                Some(Body::Json(json) | Body::Graphql { variables: json, .. }) => {
                    collect_secrets(json, &mut names);
                }
                None => {}
            },
        }
        names
    }

    /// Returns the URLs whose hosts the feed uses: the base URL, and the token URL of OAuth on another host.
    pub fn urls(&self) -> Vec<&str> {
        let mut urls = vec![self.client.base_url.as_str()];
        if let Auth::Oauth2ClientCredentials(oauth) = &self.client.auth
            && oauth.access_token_url.contains("://")
        {
            urls.push(&oauth.access_token_url);
        }
        urls
    }
}

impl Credential {
    /// Returns the name of the variable, if the value is a secret.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::Secret(secret) => Some(&secret.env),
            Self::Plain(_) => None,
        }
    }
}

/// Returns the name in an object `{env: NAME}`.
pub fn secret_in(json: &crate::Json) -> Option<&str> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    object.get("env")?.as_str()
}

fn collect_secrets<'a>(json: &'a crate::Json, names: &mut BTreeSet<&'a str>) {
    if let Some(name) = secret_in(json) {
        names.insert(name);
        return;
    }
    match json {
        crate::Json::Array(items) => items.iter().for_each(|item| collect_secrets(item, names)),
        crate::Json::Object(entries) => entries.values().for_each(|value| collect_secrets(value, names)),
        crate::Json::Null | crate::Json::Bool(_) | crate::Json::Number(_) | crate::Json::String(_) => {}
    }
}
