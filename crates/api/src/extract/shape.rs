//! Whether JSON has the form that a type asks for: every fault at once, each with the place of its field.
//!
//! The form is the type's own JSON Schema, the one that the OpenAPI document shows: what the document says and what
//! is refused cannot part. Only the parts of JSON Schema that our types use are known here; a test makes sure of it.

use regex::Regex;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tidemill_wire::Fault;

/// Faults that one answer lists; what is wrong beyond them is found after they are mended.
const FAULTS_MAX: usize = 100;

/// The form of a type, ready to be compared with.
pub(crate) struct Shape {
    root: Value,
    patterns: HashMap<String, Regex>,
}

/// The forms that were asked for until now. There are as many as there are types of requests.
static KNOWN: RwLock<Option<HashMap<TypeId, Arc<Shape>>>> = RwLock::new(None);

/// The form of a type.
pub(crate) fn shape_of<T: JsonSchema + 'static>() -> Arc<Shape> {
    let id = TypeId::of::<T>();
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(shape) = known.as_ref().and_then(|known| known.get(&id)) {
        return shape.clone();
    }
    drop(known);
    let shape =
        Arc::new(Shape::new(SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()));
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.get_or_insert_with(HashMap::new).insert(id, shape.clone());
    shape
}

impl Shape {
    /// The form that a schema describes.
    pub(crate) fn new(schema: Schema) -> Self {
        let root = schema.to_value();
        let mut patterns = HashMap::new();
        collect(&root, &mut patterns);
        Self { root, patterns }
    }

    /// What each field of an object is, for whoever has to make values of texts.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.root["properties"].as_object().into_iter().flatten()
    }

    /// Whether a field takes this type.
    pub(crate) fn takes(&self, schema: &Value, kind: &str) -> bool {
        let schema = self.resolved(schema);
        let own = match &schema["type"] {
            Value::String(own) => own == kind,
            Value::Array(own) => own.iter().any(|own| own == kind),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        };
        own || schema["anyOf"].as_array().into_iter().flatten().any(|choice| self.takes(choice, kind))
    }

    /// Everything that is wrong with a value.
    pub(crate) fn faults(&self, value: &Value) -> Vec<Fault> {
        let mut look = Look { shape: self, faults: Vec::new() };
        look.check(&self.root, value, "");
        nul(value, "", &mut look.faults);
        look.faults.truncate(FAULTS_MAX);
        look.faults
    }

    fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        name.map_or(schema, |name| &self.root["$defs"][name])
    }
}

/// Every pattern of a schema, compiled.
fn collect(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(text) = fields.get("pattern").and_then(Value::as_str)
                && let Ok(pattern) = Regex::new(text)
            {
                patterns.insert(text.to_owned(), pattern);
            }
            fields.values().for_each(|value| collect(value, patterns));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, patterns)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The place of a field within another.
fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn fault(faults: &mut Vec<Fault>, path: &str, problem: impl Into<String>) {
    let field = if path.is_empty() { "body" } else { path };
    faults.push(Fault { field: field.to_owned(), problem: problem.into() });
}

/// Texts with a NUL character, which PostgreSQL cannot keep.
fn nul(value: &Value, path: &str, faults: &mut Vec<Fault>) {
    let problem = "contains a NUL character, which PostgreSQL cannot keep";
    match value {
        Value::String(text) if text.contains('\0') => fault(faults, path, problem),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| nul(item, &format!("{path}[{at}]"), faults));
        }
        Value::Object(fields) => {
            for (name, item) in fields {
                if name.contains('\0') {
                    fault(faults, path, problem);
                }
                nul(item, &below(path, name), faults);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Look<'a> {
    shape: &'a Shape,
    faults: Vec<Fault>,
}

impl Look<'_> {
    fn add(&mut self, path: &str, problem: impl Into<String>) {
        fault(&mut self.faults, path, problem);
    }

    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        if self.faults.len() >= FAULTS_MAX {
            return;
        }
        if schema.get("$ref").is_some() {
            let shape = self.shape;
            self.check(shape.resolved(schema), value, path);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[key].as_array() {
                self.any(choices, value, path);
            }
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(part, value, path);
        }
        if !self.has_type(&schema["type"], value, path) {
            return;
        }
        self.known_value(schema, value, path);
        match value {
            Value::Number(_) => self.number(schema, value, path),
            Value::String(text) => self.text(schema, text, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// One of several forms. What is said is about the first that is not `null`, for `null` was not meant.
    fn any(&mut self, choices: &[Value], value: &Value, path: &str) {
        let mut first: Option<Vec<Fault>> = None;
        for choice in choices {
            let mut look = Look { shape: self.shape, faults: Vec::new() };
            look.check(choice, value, path);
            if look.faults.is_empty() {
                return;
            }
            if choice["type"] != "null" && first.is_none() {
                first = Some(look.faults);
            }
        }
        self.faults.extend(first.unwrap_or_default());
    }

    fn has_type(&mut self, kinds: &Value, value: &Value, path: &str) -> bool {
        let kinds: Vec<&str> = match kinds {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return true,
        };
        if kinds.iter().any(|kind| is_a(kind, value)) {
            return true;
        }
        let words: Vec<&str> = kinds.iter().map(|kind| in_words(kind)).collect();
        self.add(path, format!("must be {}", words.join(" or ")));
        false
    }

    fn known_value(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(known) = schema["enum"].as_array()
            && !known.contains(value)
        {
            let words: Vec<String> = known
                .iter()
                .map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned))
                .collect();
            self.add(path, format!("must be one of {}", words.join(", ")));
        }
        if let Some(only) = schema.get("const")
            && only != value
        {
            self.add(path, format!("must be {only}"));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, path: &str) {
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

    fn text(&mut self, schema: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            let problem = match least {
                1 => "must not be empty".to_owned(),
                _ => format!("is {length} characters long; it takes {least} at the least"),
            };
            self.add(path, problem);
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            self.add(path, format!("is {length} characters long; at most {most} are allowed"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && self.shape.patterns.get(pattern).is_some_and(|compiled| !compiled.is_match(text))
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

    fn list(&mut self, schema: &Value, items: &[Value], path: &str) {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            self.add(path, format!("has {count} items; it takes {least} at the least"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.add(path, format!("has {count} items; at most {most} are allowed"));
        }
        for (at, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &format!("{path}[{at}]"));
        }
    }

    fn object(&mut self, schema: &Value, fields: &serde_json::Map<String, Value>, path: &str) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.add(&below(path, name), "is missing");
            }
        }
        for (name, value) in fields {
            match schema["properties"].get(name) {
                Some(known) => self.check(known, value, &below(path, name)),
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    self.add(&below(path, name), "is not known here");
                }
                None => self.check(&schema["additionalProperties"], value, &below(path, name)),
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

fn in_words(kind: &str) -> &str {
    match kind {
        "null" => "null",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

/// The bounds of a number: those that are named, and those of its format.
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

/// A number without loss where it is whole; cut where it is not.
fn exact(value: &Value) -> i128 {
    let whole = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    #[expect(clippy::cast_possible_truncation, reason = "the bounds of our numbers are whole")]
    whole.unwrap_or_else(|| value.as_f64().unwrap_or_default() as i128)
}

#[cfg(test)]
mod tests;
