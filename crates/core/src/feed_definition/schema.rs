//! The JSON Schema of feed definitions, for completion and checks in editors.
//!
//! Its keys are the keys of the parser. It checks less than [`parse`](super::parse): a schema cannot express paths,
//! expressions and combinations of sections.

use super::read::{
    AUTH_TYPES, CLIENT_KEYS, COLUMN_KEYS, CONTRACT_KEYS, COUNT_KEYS, DELETE_KEYS, FLAG_KEYS, GRAPHQL_KEYS,
    INCREMENTAL_KEYS, KEYS, LOOKUP_KEYS, PAGINATOR_TYPES, PARTITION_TYPES, RESOURCE_KEYS, TARGET_KEYS,
    TRUST_KEYS,
};
use super::target::ColumnType;
use crate::Json;
use crate::limits::{
    EXPRESSION_BYTES_MAX, FEED_LOOKUP_IDS_MAX, FEED_PAGE_SIZE, FEED_PAGE_SIZE_MAX, FEED_RATE, FEED_RATE_MAX,
    FEED_VALUES_MAX,
};
use serde_json::{Map, json};

/// Pattern of the name of a feed.
const FEED_NAME: &str = "^[a-z0-9][a-z0-9-]{0,63}$";
/// Pattern of a name.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// Pattern of a duration.
const LENGTH: &str = "^[0-9]+ *[smhd]?$";
/// Pattern of a table.
const TABLE: &str = "^[A-Za-z_][A-Za-z0-9_]{0,62}\\.[A-Za-z_][A-Za-z0-9_]{0,62}$";

/// Pattern of a column.
const COLUMN: &str = "^[A-Za-z_][A-Za-z0-9_]{0,62}$";

/// Returns the schema of a feed definition.
pub fn schema() -> Json {
    let mut schema = object("definition", &KEYS, &["version", "feed", "client", "resource", "into"]);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Tidemill feed");
    schema["description"] = json!("A paged API and the table that receives its records: tidemill.feed.yaml.");
    schema["$defs"] = json!({
        "secret": {"type": "object", "additionalProperties": false, "required": ["env"],
            "description": "Name of the environment variable that contains the secret.",
            "properties": {"env": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}},
        "path": {"type": "string", "description": "Path in a JSON value, such as `data.items[0].id`."},
        "length": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": LENGTH}]},
        "texts": {"oneOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": {"type": ["string", "number"]}}
        ]},
        "scalars": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    });
    schema
}

/// Returns the schema of a mapping with these keys.
fn object(section: &str, keys: &[&str], required: &[&str]) -> Json {
    let properties: Map<String, Json> =
        keys.iter().map(|key| ((*key).to_owned(), property(section, key))).collect();
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// Returns the schema of a mapping whose keys depend on its type.
fn tagged(section: &str, types: &[(&str, &[&str])]) -> Json {
    let variants: Vec<Json> = types
        .iter()
        .map(|(word, keys)| {
            let mut variant = object(section, keys, &["type"]);
            variant["properties"]["type"] = json!({"const": word});
            variant
        })
        .collect();
    json!({"oneOf": variants})
}

/// Returns the schema of one key.
fn property(section: &str, key: &str) -> Json {
    let (mut schema, text) = match section {
        "definition" => definition_key(key),
        "client" | "resource" | "graphql" | "count" => request_key(section, key),
        "auth" => auth_key(key),
        "paginator" => paginator_key(key),
        "incremental" | "partition" => range_key(section, key),
        "trust" | "deletes" | "lookup" | "flag" => rule_key(section, key),
        "into" | "column" | "contract" => target_key(section, key),
        _ => unknown(),
    };
    if !text.is_empty() {
        schema["description"] = json!(text);
    }
    schema
}

type KeySchema = (Json, &'static str);

fn unknown() -> KeySchema {
    (json!({}), "")
}

fn text() -> Json {
    json!({"type": "string", "minLength": 1})
}

fn path() -> Json {
    json!({"$ref": "#/$defs/path"})
}

fn secret() -> Json {
    json!({"$ref": "#/$defs/secret"})
}

fn length() -> Json {
    json!({"$ref": "#/$defs/length"})
}

fn words(words: &[&str]) -> Json {
    json!({"enum": words})
}

fn definition_key(key: &str) -> KeySchema {
    match key {
        "version" => (json!({"const": 1}), "Version of the file format."),
        "feed" => (
            json!({"type": "string", "pattern": FEED_NAME}),
            "Name of the feed: lower-case letters, digits and dashes.",
        ),
        "client" => (object("client", &CLIENT_KEYS, &["base_url"]), "Connection to the API."),
        "resource" => {
            (object("resource", &RESOURCE_KEYS, &["path", "primary_key"]), "Endpoint that lists the records.")
        }
        "paginator" => {
            let names: Vec<&str> = PAGINATOR_TYPES.iter().map(|(word, _)| *word).collect();
            let mut schema = tagged("paginator", &PAGINATOR_TYPES);
            if let Some(variants) = schema["oneOf"].as_array_mut() {
                variants.push(words(&names));
            }
            (schema, "How the pages of the list are requested. Without it, `auto`.")
        }
        "incremental" => (
            object("incremental", &INCREMENTAL_KEYS, &["cursor_path"]),
            "Value that grows with each change of a record. Without it, every sync is full.",
        ),
        "partition" => {
            (tagged("partition", &PARTITION_TYPES), "How a sync is divided into parallel partitions.")
        }
        "trust" => {
            (object("trust", &TRUST_KEYS, &[]), "Sign of the end of the list, and checks of the source.")
        }
        "deletes" => (object("deletes", &DELETE_KEYS, &[]), "How deleted records are found."),
        "into" => (object("into", &TARGET_KEYS, &["table"]), "Table that receives the records."),
        _ => unknown(),
    }
}

fn request_key(section: &str, key: &str) -> KeySchema {
    match (section, key) {
        ("client", "base_url") => {
            (json!({"type": "string", "pattern": "^https?://"}), "URL to which paths are appended.")
        }
        ("client", "headers") => {
            (json!({"$ref": "#/$defs/scalars"}), "Headers of every request, without secrets.")
        }
        ("client", "timeout") => (length(), "Time limit of one request, such as 45s."),
        ("client", "rate") => (
            json!({"type": "integer", "minimum": 0, "maximum": FEED_RATE_MAX, "default": FEED_RATE}),
            "Requests per second, over all workers; 0 means unlimited.",
        ),
        ("client", "budget") => {
            (json!({"type": "string", "pattern": NAME}), "Name of a rate limit that several feeds share.")
        }
        ("client", "auth") => {
            (tagged("auth", &AUTH_TYPES), "Authentication. Secrets are named, never written here.")
        }
        (_, "path") => (text(), "Path below the base URL."),
        (_, "method") => {
            (words(&["GET", "POST"]), "HTTP method. The default is POST with a body, otherwise GET.")
        }
        (_, "params") => (json!({"$ref": "#/$defs/scalars"}), "Query parameters."),
        (_, "json") => (json!({}), "JSON body."),
        (_, "graphql") => (object("graphql", &GRAPHQL_KEYS, &["query"]), "GraphQL body."),
        ("graphql", "query") => (text(), "GraphQL document."),
        ("graphql", "variables") => (json!({"type": "object"}), "Variables of the document."),
        ("resource", "data_selector") => {
            (path(), "Path of the list of records in the answer, such as `data.items`.")
        }
        ("resource", "primary_key") => (json!({"$ref": "#/$defs/texts"}), "Paths of the id in a record."),
        ("count", "total_path") => (path(), "Path of the number of records in the answer."),
        ("count", "header") => (text(), "Header with the number of records."),
        _ => unknown(),
    }
}

fn auth_key(key: &str) -> KeySchema {
    let credential = || json!({"oneOf": [text(), secret()]});
    match key {
        "token" => (secret(), "Token of the header `Authorization: Bearer`."),
        "username" => (credential(), "User name."),
        "password" => (secret(), "Password."),
        "name" => (text(), "Name of the header, query parameter, cookie or variable."),
        "location" => (
            words(&["header", "query", "cookie", "bearer", "variable"]),
            "Place of the key or token in requests; `bearer` and `variable` only for a login.",
        ),
        "api_key" => (secret(), "API key."),
        "access_token_url" => (text(), "URL of the token endpoint, or a path below the base URL."),
        "client_id" => (credential(), "Client id."),
        "client_secret" => (secret(), "Client secret."),
        "access_token_request_data" => {
            (json!({"$ref": "#/$defs/scalars"}), "Further form fields, such as `scope`.")
        }
        "default_token_expiration" => (length(), "Lifetime of a token whose answer has no `expires_in`."),
        "path" => (text(), "Path of the login below the base URL."),
        "method" => (words(&["GET", "POST"]), "HTTP method of the login."),
        "json" => (json!({}), "JSON body of the login. `{env: NAME}` is replaced by the secret."),
        "graphql" => (object("graphql", &GRAPHQL_KEYS, &["query"]), "GraphQL body of the login."),
        "token_path" => (path(), "Path of the token in the answer."),
        "lifetime" => (length(), "Lifetime of a token, such as 6h."),
        _ => unknown(),
    }
}

fn paginator_key(key: &str) -> KeySchema {
    match key {
        "limit" => (
            json!({"type": "integer", "minimum": 1, "maximum": FEED_PAGE_SIZE_MAX, "default": FEED_PAGE_SIZE}),
            "Records on a page.",
        ),
        "limit_param" => (text(), "Query parameter with the number of records."),
        "limit_body_path" => (path(), "Path in the body with the number of records."),
        "page_param" => (text(), "Query parameter with the page number; the default is `page`."),
        "page_body_path" => (path(), "Path in the body with the page number."),
        "base_page" => (json!({"type": "integer", "minimum": 0}), "Number of the first page."),
        "offset_param" => {
            (text(), "Query parameter with the position of the first record; the default is `offset`.")
        }
        "offset_body_path" => (path(), "Path in the body with the position of the first record."),
        "cursor_path" => (path(), "Path of the cursor in the answer."),
        "cursor_param" => (text(), "Query parameter with the cursor."),
        "cursor_body_path" => (path(), "Path in the body with the cursor."),
        "next_url_path" => (path(), "Path of the next URL in the answer."),
        "cursor_key" => (text(), "Header of the answer with the cursor."),
        "header" => (text(), "Header of the answer with the next URL."),
        "links_next_key" => {
            (text(), "Relation of the next page in the header `Link`; the default is `next`.")
        }
        "key_path" => (path(), "Path of the sorted key in a record; the default is the id."),
        "offset_variable" => (text(), "GraphQL variable with the position; the default is `offset`."),
        "limit_variable" => (text(), "GraphQL variable with the number of records."),
        "cursor_variable" => (text(), "GraphQL variable with the cursor; the default is `after`."),
        "connection_path" => (path(), "Path of the connection, which contains `pageInfo`."),
        _ => unknown(),
    }
}

fn range_key(section: &str, key: &str) -> KeySchema {
    let formats = || words(&["rfc3339", "date", "unix", "unix_ms"]);
    let boundary = || json!({"type": ["string", "number"]});
    match (section, key) {
        ("incremental", "cursor_path") => (path(), "Path of the cursor in a record."),
        ("incremental", "start_param") => (text(), "Query parameter with the lower bound."),
        ("incremental", "start_body_path") => (path(), "Path in the body with the lower bound."),
        ("incremental", "kind") => (words(&["time", "number"]), "Type of the value; the default is `time`."),
        (_, "format") => (formats(), "Format of times."),
        ("incremental", "overlap") => (length(), "How far before the watermark a sync starts to read."),
        ("incremental", "initial_value") => (boundary(), "Start value of a feed that has no watermark yet."),
        (_, "field") => (path(), "Path of the field in a record."),
        (_, "kind") => (words(&["money", "number", "time"]), "Unit of the field."),
        (_, "decimals") => {
            (json!({"type": "integer", "minimum": 0, "maximum": 6, "default": 2}), "Decimals of money.")
        }
        (_, "from") => (boundary(), "Lowest usual value. Lower ones belong to the first partition."),
        (_, "to") => (boundary(), "Highest usual value. Higher ones belong to the last partition."),
        (_, "granularity") => (boundary(), "Smallest width of a partition, such as 0.01, 1 or 1d."),
        (_, "from_param") => (text(), "Query parameter with the lower boundary, which is included."),
        (_, "from_body_path") => (path(), "Path in the body with the lower boundary, which is included."),
        (_, "to_param") => (text(), "Query parameter with the upper boundary."),
        (_, "to_body_path") => (path(), "Path in the body with the upper boundary."),
        (_, "to_bound") => (words(&["exclusive", "inclusive"]), "Whether the upper boundary is included."),
        (_, "count") => (object("count", &COUNT_KEYS, &[]), "How the records of a range are counted."),
        (_, "window") => (length(), "Length of a time window, such as 30d."),
        (_, "param") => (text(), "Query parameter with the value."),
        (_, "body_path") => (path(), "Path in the body with the value."),
        (_, "values") => (
            json!({
                "type": "array", "minItems": 1, "maxItems": FEED_VALUES_MAX,
                "items": {"type": ["string", "number"]}
            }),
            "One partition for each value.",
        ),
        _ => unknown(),
    }
}

fn rule_key(section: &str, key: &str) -> KeySchema {
    match (section, key) {
        ("trust", "end") => (
            words(&["empty_page", "short_page", "has_more", "total", "no_next"]),
            "Sign of the end of the list.",
        ),
        ("trust", "has_more_path") => (path(), "Path of a flag that is true until the last page."),
        ("trust", "total_path") => {
            (path(), "Path of the total, which is compared with the records that were read.")
        }
        ("trust", "total_header") => (text(), "Header with the total."),
        ("trust", "recount") => {
            (json!({"type": "boolean", "default": true}), "Count a partition again after it was read.")
        }
        ("trust", "repeats") => (
            json!({"type": "boolean", "default": true}),
            "Fail if a page repeats the previous one. Otherwise the list ends there.",
        ),
        ("trust", "complete") => (
            json!({"type": "boolean", "default": false}),
            "Declare that the list, read to its end, contains every record. Absent records are then deleted without \
             further evidence.",
        ),
        ("deletes", "lookup") => (object("lookup", &LOOKUP_KEYS, &[]), "Request for records by id."),
        ("deletes", "flag") => {
            (object("flag", &FLAG_KEYS, &["path"]), "Value in a record that marks it as deleted.")
        }
        ("deletes", "absence") => (
            json!({"type": "boolean", "default": true}),
            "Records that a full sync does not contain are deleted.",
        ),
        ("deletes", "threshold") => (
            json!({"type": "number", "minimum": 0, "maximum": 1, "default": 0.2}),
            "Fraction of the records that one sync may delete.",
        ),
        ("lookup", "param") => (text(), "Query parameter with the ids."),
        ("lookup", "body_path") => (path(), "Path in the body with the list of ids."),
        ("lookup", "separator") => (text(), "Separator of the ids. Without it, the parameter is repeated."),
        ("lookup", "ids_max") => {
            (json!({"type": "integer", "minimum": 1, "maximum": FEED_LOOKUP_IDS_MAX}), "Ids in one request.")
        }
        ("lookup", "path") => {
            (json!({"type": "string", "pattern": "\\{id\\}"}), "Path of one record, with `{id}`.")
        }
        ("lookup", "gone_status") => {
            (json!({"$ref": "#/$defs/texts"}), "Statuses of a deleted record; the default is [404, 410].")
        }
        ("flag", "path") => (path(), "Path of the flag in a record."),
        ("flag", "equals") => (
            json!({"type": ["string", "number", "boolean"]}),
            "Value of a deleted record. Without it, any value except null and false.",
        ),
        _ => unknown(),
    }
}

fn target_key(section: &str, key: &str) -> KeySchema {
    let modes = || words(&["evolve", "freeze", "discard_row", "discard_value"]);
    match (section, key) {
        ("into", "table") => (json!({"type": "string", "pattern": TABLE}), "Schema and table."),
        ("into", "primary_key") => (json!({"$ref": "#/$defs/texts"}), "Columns of the primary key."),
        ("into", "columns") => (
            json!({"type": "object", "additionalProperties": {
                "oneOf": [{"$ref": "#/$defs/path"}, object("column", &COLUMN_KEYS, &[])]
            }}),
            "Columns by name. Without it, they are inferred from the data.",
        ),
        ("into", "write_disposition") => (words(&["merge", "append", "replace"]), "How records are written."),
        ("into", "deleted_at") => (
            json!({"type": "string", "pattern": COLUMN}),
            "Column with the time at which a row was marked as deleted. Without it, rows are deleted.",
        ),
        ("into", "schema_contract") => (
            json!({"oneOf": [modes(), object("contract", &CONTRACT_KEYS, &[])]}),
            "Reaction to a missing table and to new columns.",
        ),
        ("column", "path") => {
            (path(), "Path of the value in a record; the default is the name of the column.")
        }
        ("column", "cel") => (
            json!({"type": "string", "maxLength": EXPRESSION_BYTES_MAX}),
            "CEL expression over the variable `record`.",
        ),
        ("column", "constant") => (json!({}), "The same value for each record."),
        ("column", "type") => {
            (words(&ColumnType::ALL.map(|(word, _)| word)), "Type of the column; the default is `text`.")
        }
        ("column", "format") => {
            (words(&["rfc3339", "date", "unix", "unix_ms"]), "Format of timestamps and dates.")
        }
        ("column", "default") => (json!({}), "Value for a record without one."),
        ("column", "nullable") => (json!({"type": "boolean"}), "Whether the column may be NULL."),
        ("contract", "tables") => (modes(), "Reaction to a missing table."),
        ("contract", "columns") => (modes(), "Reaction to new columns."),
        _ => unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the keys without a description below `schema`.
    fn undescribed(schema: &Json, at: &str, found: &mut Vec<String>) {
        if let Some(properties) = schema["properties"].as_object() {
            for (key, inner) in properties {
                let at = format!("{at}.{key}");
                if inner.get("description").is_none() && inner.get("const").is_none() && !at.contains("$defs")
                {
                    found.push(at.clone());
                }
                undescribed(inner, &at, found);
            }
        }
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            undescribed(variant, at, found);
        }
        if let Some(inner) = schema.get("additionalProperties") {
            undescribed(inner, at, found);
        }
    }

    #[test]
    fn every_key_of_the_parser_has_a_description() {
        let mut found = Vec::new();
        undescribed(&schema(), "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
