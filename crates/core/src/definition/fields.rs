//! Typed access to the keys of a mapping. Each method reports its error with the position of the value.

use super::error::{DefinitionErrors, Position, nearest, shown};
use super::yaml::{Node, Value};
use crate::graph::units;
use crate::limits::VARIABLE_NAME_BYTES_MAX;
use std::collections::BTreeMap;

/// Reports each key that is not in `known`.
pub(crate) fn check_keys(
    what: &str,
    entries: &[(String, Position, Node)],
    known: &[&str],
    errors: &mut DefinitionErrors,
) {
    for (key, at, _) in entries {
        if !known.contains(&key.as_str()) {
            let message = format!("`{}` is not a key of {what}", shown(key));
            match nearest(key, known.iter().copied()) {
                Some(meant) => errors.hint(*at, message, format!("did you mean `{meant}`?")),
                None => errors.hint(*at, message, format!("the keys are {}", known.join(", "))),
            }
        }
    }
}

/// Returns the text of a node; an empty text is an error.
pub(crate) fn text_of(what: &str, node: &Node, errors: &mut DefinitionErrors) -> Option<String> {
    match &node.value {
        Value::Text(text, _) if !node.is_empty() && !text.is_empty() => {
            if text.contains('\0') {
                errors.add(node.at, format!("`{what}` contains a NUL character"));
                return None;
            }
            Some(text.clone())
        }
        Value::Text(..) => {
            errors.add(node.at, format!("`{what}` is empty"));
            None
        }
        Value::List(_) | Value::Map(_) => {
            errors.add(node.at, format!("`{what}` is {}; it must be text", node.kind()));
            None
        }
    }
}

/// Returns whether a text is a valid name of an environment variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let fits = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
    !name.is_empty()
        && name.len() <= VARIABLE_NAME_BYTES_MAX
        && !name.starts_with(|symbol: char| symbol.is_ascii_digit())
        && name.chars().all(fits)
}

/// The keys of one mapping, such as `client`.
#[derive(Debug)]
pub(crate) struct Fields {
    /// Name of the mapping in messages.
    what: String,
    /// Position of the mapping.
    pub(crate) at: Position,
    nodes: BTreeMap<String, Node>,
    keys_at: BTreeMap<String, Position>,
}

impl Fields {
    /// Reads a mapping, without a check of its keys. Other nodes are an error.
    pub(crate) fn read(what: &str, node: Node, errors: &mut DefinitionErrors) -> Option<Self> {
        let (at, kind) = (node.at, node.kind());
        let Value::Map(entries) = node.value else {
            errors.hint(
                at,
                format!("`{what}` is {kind}; it must be a mapping"),
                "write `key: value` below it",
            );
            return None;
        };
        let keys_at = entries.iter().map(|(key, at, _)| (key.clone(), *at)).collect();
        let nodes = entries.into_iter().map(|(key, _, node)| (key, node)).collect();
        Some(Self { what: what.to_owned(), at, nodes, keys_at })
    }

    /// Reports each key that is not in `known`.
    pub(crate) fn check(&self, known: &[&str], errors: &mut DefinitionErrors) {
        self.check_named(&format!("`{}`", self.what), known, errors);
    }

    /// Reports each key that is not in `known`, with another name of the mapping.
    pub(crate) fn check_named(&self, what: &str, known: &[&str], errors: &mut DefinitionErrors) {
        for (key, at) in &self.keys_at {
            if known.contains(&key.as_str()) {
                continue;
            }
            let message = format!("`{}` is not a key of {what}", shown(key));
            match nearest(key, known.iter().copied()) {
                Some(meant) => errors.hint(*at, message, format!("did you mean `{meant}`?")),
                None => errors.hint(*at, message, format!("the keys are {}", known.join(", "))),
            }
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.nodes.contains_key(key)
    }

    /// Returns the position of a key's value, or of the mapping.
    pub(crate) fn at(&self, key: &str) -> Position {
        self.nodes.get(key).map_or(self.at, |node| node.at)
    }

    pub(crate) fn node(&self, key: &str) -> Option<&Node> {
        self.nodes.get(key)
    }

    /// Returns the mapping below a key.
    pub(crate) fn child(&self, key: &str, errors: &mut DefinitionErrors) -> Option<Self> {
        Self::read(key, self.nodes.get(key)?.clone(), errors)
    }

    /// Reports a missing key.
    pub(crate) fn require(&self, key: &str, hint: &str, errors: &mut DefinitionErrors) {
        if !self.has(key) {
            errors.hint(self.at, format!("`{}` has no `{key}`", self.what), hint);
        }
    }

    /// Returns a text of at most `bytes_max` bytes.
    pub(crate) fn text(&self, key: &str, bytes_max: usize, errors: &mut DefinitionErrors) -> Option<String> {
        let node = self.nodes.get(key)?;
        let text = text_of(key, node, errors)?;
        if text.len() > bytes_max {
            let message = format!("`{key}` is {} bytes long; at most {bytes_max} are allowed", text.len());
            errors.add(node.at, message);
            return None;
        }
        Some(text)
    }

    /// Returns an integer between `min` and `max`.
    pub(crate) fn number(&self, key: &str, min: u64, max: u64, errors: &mut DefinitionErrors) -> Option<u64> {
        let node = self.nodes.get(key)?;
        let text = text_of(key, node, errors)?;
        if let Ok(number) = text.parse::<u64>()
            && (min..=max).contains(&number)
        {
            return Some(number);
        }
        let shown = shown(&text);
        let message = format!("`{key}` is `{shown}`; it must be a whole number between {min} and {max}");
        errors.add(node.at, message);
        None
    }

    /// Returns `true` or `false`; anything else is an error.
    pub(crate) fn flag(&self, key: &str, errors: &mut DefinitionErrors) -> Option<bool> {
        let node = self.nodes.get(key)?;
        let text = text_of(key, node, errors)?;
        match text.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                let message = format!("`{key}` is `{}`; it must be true or false", shown(&text));
                errors.add(node.at, message);
                None
            }
        }
    }

    /// Returns a duration in seconds, from `min` to `max`.
    pub(crate) fn secs(&self, key: &str, min: u32, max: u32, errors: &mut DefinitionErrors) -> Option<u32> {
        let node = self.nodes.get(key)?;
        let text = text_of(key, node, errors)?;
        match units::secs(&text) {
            Ok(secs) if (min..=max).contains(&secs) => Some(secs),
            Ok(_) => {
                let (min, max) = (units::show_secs(min), units::show_secs(max));
                let message = format!("`{key}` is `{}`; it must be between {min} and {max}", shown(&text));
                errors.add(node.at, message);
                None
            }
            Err(hint) => {
                errors.hint(node.at, format!("`{}` is not a duration", shown(&text)), hint);
                None
            }
        }
    }

    /// Returns the value that a word stands for.
    pub(crate) fn word<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
        errors: &mut DefinitionErrors,
    ) -> Option<T> {
        let node = self.nodes.get(key)?;
        let text = text_of(key, node, errors)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let message = format!("unknown value `{}` for `{key}`", shown(&text));
        let hint = if let Some(meant) = nearest(&text, words.iter().map(|(word, _)| *word)) {
            format!("did you mean `{meant}`?")
        } else {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("use one of {}", known.join(", "))
        };
        errors.hint(node.at, message, hint);
        None
    }

    /// Returns a list of texts; a single text counts as a list.
    pub(crate) fn texts(
        &self,
        key: &str,
        count_max: usize,
        bytes_max: usize,
        errors: &mut DefinitionErrors,
    ) -> Option<Vec<String>> {
        let node = self.nodes.get(key)?;
        let items: Vec<&Node> = match &node.value {
            Value::List(items) => items.iter().collect(),
            Value::Text(..) | Value::Map(_) => vec![node],
        };
        if items.is_empty() || items.len() > count_max {
            let message = format!("`{key}` has {} entries; it must have 1 to {count_max}", items.len());
            errors.add(node.at, message);
            return None;
        }
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            let text = text_of(key, item, errors)?;
            if text.len() > bytes_max {
                let length = text.len();
                errors.add(
                    item.at,
                    format!("an entry of `{key}` is {length} bytes long; at most {bytes_max} are allowed"),
                );
                return None;
            }
            texts.push(text);
        }
        Some(texts)
    }

    /// Returns the entries of a mapping below a key, each with its position.
    pub(crate) fn entries(
        &self,
        key: &str,
        count_max: usize,
        errors: &mut DefinitionErrors,
    ) -> Vec<(String, Position, Node)> {
        let Some(node) = self.nodes.get(key) else { return Vec::new() };
        let Value::Map(entries) = &node.value else {
            let message = format!("`{key}` is {}; it must be a mapping", node.kind());
            errors.hint(node.at, message, "write `name: value` below it");
            return Vec::new();
        };
        if entries.len() > count_max {
            let count = entries.len();
            errors.add(node.at, format!("`{key}` has {count} entries; at most {count_max} are allowed"));
            return Vec::new();
        }
        entries.clone()
    }
}
