//! Validation of JSON against the schema of a type. It reports all errors at once, each with the path of its field.
//!
//! The schema is the one in the OpenAPI document, so documentation and validation cannot diverge. Only the keywords of
//! JSON Schema that our types use are supported; a test checks that.

use regex::Regex;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tidemill_wire::FieldError;

/// Maximum number of errors in one response.
const ERRORS_MAX: usize = 100;

/// Compiled schema of a type.
pub(crate) struct CompiledSchema {
    root: Value,
    patterns: HashMap<String, Regex>,
}

/// Cache of compiled schemas, one per request type.
static CACHE: RwLock<Option<HashMap<TypeId, Arc<CompiledSchema>>>> = RwLock::new(None);

/// Returns the compiled schema of a type.
pub(crate) fn schema_of<T: JsonSchema + 'static>() -> Arc<CompiledSchema> {
    let id = TypeId::of::<T>();
    let known = CACHE.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = known.as_ref().and_then(|known| known.get(&id)) {
        return schema.clone();
    }
    drop(known);
    let schema = Arc::new(CompiledSchema::new(
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>(),
    ));
    let mut known = CACHE.write().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_with(HashMap::new).insert(id, schema.clone());
    schema
}

impl CompiledSchema {
    pub(crate) fn new(schema: Schema) -> Self {
        let root = schema.to_value();
        let mut patterns = HashMap::new();
        collect_patterns(&root, &mut patterns);
        Self { root, patterns }
    }

    /// The fields of an object with their schemas.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.root["properties"].as_object().into_iter().flatten()
    }

    /// Whether a schema accepts values of this JSON type.
    pub(crate) fn accepts(&self, schema: &Value, kind: &str) -> bool {
        let schema = self.resolve(schema);
        let own = match &schema["type"] {
            Value::String(own) => own == kind,
            Value::Array(own) => own.iter().any(|own| own == kind),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        own || schema["anyOf"].as_array().into_iter().flatten().any(|choice| self.accepts(choice, kind))
    }

    /// Returns all errors of a value.
    pub(crate) fn validate(&self, value: &Value) -> Vec<FieldError> {
        let mut validation = Validation { compiled: self, errors: Vec::new() };
        validation.check(&self.root, value, "");
        check_nul(value, "", &mut validation.errors);
        validation.errors.truncate(ERRORS_MAX);
        validation.errors
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        name.map_or(schema, |name| &self.root["$defs"][name])
    }
}

/// Compiles every pattern of a schema.
fn collect_patterns(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(text) = fields.get("pattern").and_then(Value::as_str)
                && let Ok(pattern) = Regex::new(text)
            {
                patterns.insert(text.to_owned(), pattern);
            }
            fields.values().for_each(|value| collect_patterns(value, patterns));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_patterns(value, patterns)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Path of a field within an object.
fn field_path(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn add_error(errors: &mut Vec<FieldError>, path: &str, problem: impl Into<String>) {
    let field = if path.is_empty() { "body" } else { path };
    errors.push(FieldError { field: field.to_owned(), problem: problem.into() });
}

/// Reports strings with a NUL character, which PostgreSQL cannot store.
fn check_nul(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let problem = "contains a NUL character, which PostgreSQL cannot store";
    match value {
        Value::String(text) if text.contains('\0') => add_error(errors, path, problem),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| check_nul(item, &format!("{path}[{at}]"), errors));
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                if name.contains('\0') {
                    add_error(errors, path, problem);
                }
                check_nul(item, &field_path(path, name), errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Validation<'a> {
    compiled: &'a CompiledSchema,
    errors: Vec<FieldError>,
}

impl Validation<'_> {
    fn add(&mut self, path: &str, problem: impl Into<String>) {
        add_error(&mut self.errors, path, problem);
    }

    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        if self.errors.len() >= ERRORS_MAX {
            return;
        }
        if schema.get("$ref").is_some() {
            let compiled = self.compiled;
            self.check(compiled.resolve(schema), value, path);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[key].as_array() {
                self.check_choices(choices, value, path);
            }
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(part, value, path);
        }
        if !self.check_type(&schema["type"], value, path) {
            return;
        }
        self.check_enum(schema, value, path);
        match value {
            Value::Number(_) => self.check_number(schema, value, path),
            Value::String(text) => self.check_string(schema, text, path),
            Value::Array(items) => self.check_array(schema, items, path),
            Value::Object(fields) => self.check_object(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Checks `anyOf` and `oneOf`. If no choice matches, it reports the errors of the first one that is not `null`.
    fn check_choices(&mut self, choices: &[Value], value: &Value, path: &str) {
        let mut first: Option<Vec<FieldError>> = None;
        for choice in choices {
            let mut validation = Validation { compiled: self.compiled, errors: Vec::new() };
            validation.check(choice, value, path);
            if validation.errors.is_empty() {
                return;
            }
            if choice["type"] != "null" && first.is_none() {
                first = Some(validation.errors);
            }
        }
        self.errors.extend(first.unwrap_or_default());
    }

    fn check_type(&mut self, kinds: &Value, value: &Value, path: &str) -> bool {
        let kinds: Vec<&str> = match kinds {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return true,
        };
        if kinds.iter().any(|kind| is_a(kind, value)) {
            return true;
        }
        let names: Vec<&str> = kinds.iter().map(|kind| type_name(kind)).collect();
        self.add(path, format!("must be {}", names.join(" or ")));
        false
    }

    fn check_enum(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(known) = schema["enum"].as_array()
            && !known.contains(value)
        {
            let names: Vec<String> = known
                .iter()
                .map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned))
                .collect();
            self.add(path, format!("must be one of {}", names.join(", ")));
        }
        if let Some(only) = schema.get("const")
            && only != value
        {
            self.add(path, format!("must be {only}"));
        }
    }

    fn check_number(&mut self, schema: &Value, value: &Value, path: &str) {
        let (least, most) = bounds(schema);
        let below = least.is_some_and(|least| exact(value) < least);
        let above = most.is_some_and(|most| exact(value) > most);
        if !below && !above {
            return;
        }
        let problem = match (least, most) {
            (Some(least), Some(most)) => format!("is {value}; it must be between {least} and {most}"),
            (Some(least), None) => format!("is {value}; it must be {least} or more"),
            (None, Some(most)) => format!("is {value}; it must be {most} or less"),
            (None, None) => return,
        };
        self.add(path, problem);
    }

    fn check_string(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            let problem = match least {
                1 => "must not be empty".to_owned(),
                _ => format!("is {length} characters long; at least {least} are required"),
            };
            self.add(path, problem);
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            self.add(path, format!("is {length} characters long; at most {most} are allowed"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && self.compiled.patterns.get(pattern).is_some_and(|compiled| !compiled.is_match(text))
        {
            self.add(path, format!("must have the form {pattern}"));
        }
        match schema["format"].as_str() {
            Some("date-time") if text.parse::<chrono::DateTime<chrono::Utc>>().is_err() => {
                self.add(path, "must be a time such as 2026-02-14T10:30:00Z");
            }
            Some("uuid") if text.parse::<uuid::Uuid>().is_err() => self.add(path, "must be a UUID"),
            Some(_) | None => {}
        }
    }

    fn check_array(&mut self, schema: &Value, items: &[Value], path: &str) {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            self.add(path, format!("has {count} items; at least {least} are required"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.add(path, format!("has {count} items; at most {most} are allowed"));
        }
        for (at, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &format!("{path}[{at}]"));
        }
    }

    fn check_object(&mut self, schema: &Value, fields: &serde_json::Map<String, Value>, path: &str) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.add(&field_path(path, name), "is missing");
            }
        }
        for (name, value) in fields {
            match schema["properties"].get(name) {
                Some(known) => self.check(known, value, &field_path(path, name)),
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    self.add(&field_path(path, name), "is not a known field");
                }
                None => self.check(&schema["additionalProperties"], value, &field_path(path, name)),
            }
        }
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn type_name(kind: &str) -> &str {
    match kind {
        "null" => "null",
        "boolean" => "true or false",
        "integer" => "an integer",
        "number" => "a number",
        "string" => "a string",
        "array" => "an array",
        "object" => "an object",
        other => other,
    }
}

/// Bounds of a number: the explicit ones and those of its format.
fn bounds(schema: &Value) -> (Option<i128>, Option<i128>) {
    let (low, high): (Option<i128>, Option<i128>) = match schema["format"].as_str() {
        Some("int16") => (Some(i16::MIN.into()), Some(i16::MAX.into())),
        Some("int32") => (Some(i32::MIN.into()), Some(i32::MAX.into())),
        Some("int64") => (Some(i64::MIN.into()), Some(i64::MAX.into())),
        Some("uint16") => (Some(0), Some(u16::MAX.into())),
        Some("uint32") => (Some(0), Some(u32::MAX.into())),
        Some("uint64") => (Some(0), Some(u64::MAX.into())),
        Some(_) | None => (None, None),
    };
    let named = |key: &str| schema.get(key).filter(|bound| bound.is_number()).map(exact);
    let least = [low, named("minimum")].into_iter().flatten().max();
    let most = [high, named("maximum")].into_iter().flatten().min();
    (least, most)
}

/// The exact value of an integer; other numbers are truncated.
fn exact(value: &Value) -> i128 {
    let integer = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    #[expect(clippy::cast_possible_truncation, reason = "all bounds in our schemas are integers")]
    integer.unwrap_or_else(|| value.as_f64().unwrap_or_default() as i128)
}

#[cfg(test)]
mod tests;
