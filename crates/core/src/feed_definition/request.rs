//! The parts of a definition that describe requests: client, authentication and resource.

use super::path::JsonPath;
use crate::Json;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Connection to the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientSpec {
    /// URL to which the paths of requests are appended.
    pub base_url: String,
    /// Headers of every request. They contain no secrets.
    pub headers: BTreeMap<String, String>,
    /// Time limit of one request.
    pub timeout_secs: u32,
    /// Requests per second, over all workers. 0 means unlimited.
    pub rate: u32,
    /// Name of a rate limit that several feeds share.
    pub budget: Option<String>,
    pub auth: Auth,
}

/// Name of an environment variable that contains a secret. The secret itself is never part of a definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretName {
    /// Name of the variable.
    pub env: String,
}

/// A text in the definition, or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Credential {
    Secret(SecretName),
    Plain(String),
}

/// The way in which requests are authenticated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Auth {
    #[default]
    None,
    /// A fixed token in the header `Authorization`.
    Bearer { token: SecretName },
    /// A user name and a password in the header `Authorization`.
    HttpBasic { username: Credential, password: SecretName },
    /// A key in a header, a query parameter or a cookie.
    ApiKey { name: String, location: KeyLocation, api_key: SecretName },
    /// OAuth 2 client credentials.
    Oauth2ClientCredentials(OauthSpec),
    /// A login request whose answer contains a token.
    Login(LoginSpec),
}

/// Location of an API key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyLocation {
    #[default]
    Header,
    Query,
    Cookie,
}

/// OAuth 2 client credentials grant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OauthSpec {
    /// Absolute URL of the token endpoint, or a path below the base URL.
    pub access_token_url: String,
    pub client_id: Credential,
    pub client_secret: SecretName,
    /// Further form fields of the token request, such as `scope`.
    pub access_token_request_data: BTreeMap<String, String>,
    /// Lifetime of a token whose answer has no `expires_in`.
    pub default_token_expiration_secs: Option<u32>,
}

/// A login request and the use of its token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoginSpec {
    /// Path below the base URL.
    pub path: String,
    pub method: Method,
    /// Body of the request. An object `{env: NAME}` in it is replaced by the secret.
    pub body: Option<Body>,
    /// Path of the token in the answer.
    pub token_path: JsonPath,
    /// Where requests carry the token.
    pub location: TokenLocation,
    /// Lifetime of a token. Without it, the client's default applies.
    pub lifetime_secs: Option<u32>,
}

/// Location of a login token in requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TokenLocation {
    /// The header `Authorization`, as a bearer token.
    #[default]
    Bearer,
    /// A header of this name.
    Header(String),
    /// A query parameter of this name.
    Query(String),
    /// A cookie of this name.
    Cookie(String),
    /// A GraphQL variable of this name.
    Variable(String),
}

/// HTTP method of a request that reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    #[default]
    Get,
    Post,
}

/// Body of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Body {
    Json(Json),
    /// A GraphQL document and its variables.
    Graphql {
        query: String,
        variables: Json,
    },
}

impl Body {
    /// Returns the document that is sent.
    pub fn document(&self) -> Json {
        match self {
            Self::Json(json) => json.clone(),
            Self::Graphql { query, variables } => {
                serde_json::json!({ "query": query, "variables": variables })
            }
        }
    }

    pub const fn is_graphql(&self) -> bool {
        matches!(self, Self::Graphql { .. })
    }
}

/// A request of the definition, without filters and pagination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RequestSpec {
    /// Path below the base URL.
    pub path: String,
    pub method: Method,
    pub params: BTreeMap<String, String>,
    pub body: Option<Body>,
}

/// The endpoint that lists the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resource {
    #[serde(flatten)]
    pub request: RequestSpec,
    /// Path of the list of records in the answer. Without it, the list is recognised in each answer.
    pub data_selector: Option<JsonPath>,
    /// Paths of the id in a record. Several paths form a composite id.
    pub primary_key: Vec<JsonPath>,
}

/// Place of a parameter in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ParamTarget {
    Query(String),
    /// A path in the body that consists of keys.
    Body(JsonPath),
}

/// Value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamValue {
    Text(String),
    Integer(i64),
    /// A decimal number as text.
    Decimal(String),
}

impl ParamValue {
    /// Returns the value of a query parameter.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Decimal(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
        }
    }

    /// Returns the value in a body.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::String(text.clone()),
            Self::Integer(number) => Json::from(*number),
            Self::Decimal(text) => {
                text.parse::<f64>().map_or_else(|_| Json::String(text.clone()), Json::from)
            }
        }
    }
}

/// A parameter with its value.
pub type Param = (ParamTarget, ParamValue);

/// Sets a value at a path of keys in a body. Missing objects are created, other values replaced.
pub fn set_in_body(body: &mut Json, path: &JsonPath, value: Json) {
    let Some(keys) = path.keys() else { return };
    let mut target = body;
    for key in keys {
        if !target.is_object() {
            *target = Json::Object(serde_json::Map::new());
        }
        target = &mut target[key];
    }
    *target = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn body_value_is_set_and_missing_objects_are_created() {
        let mut body = json!({"query": "q", "variables": null});
        set_in_body(&mut body, &"variables.page.offset".parse().unwrap(), json!(30));
        set_in_body(&mut body, &"query".parse().unwrap(), json!("r"));
        assert_eq!(body, json!({"query": "r", "variables": {"page": {"offset": 30}}}));
    }

    #[test]
    fn decimal_is_a_number_in_a_body_and_a_text_in_a_query() {
        let value = ParamValue::Decimal("12.34".into());
        assert_eq!((value.to_text().as_str(), value.to_json()), ("12.34", json!(12.34)));
    }
}
