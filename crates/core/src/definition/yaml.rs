//! YAML as a tree of nodes with positions.
//!
//! Anchors, aliases and tags are rejected: aliases could expand a small file to a huge tree.

use super::error::{DefinitionErrors, Position, shown};
use crate::limits::DEFINITION_DEPTH_MAX;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A scalar, and whether it was quoted.
    Text(String, bool),
    List(Vec<Node>),
    /// Keys with their positions, in the order of the file.
    Map(Vec<(String, Position, Node)>),
}

impl Node {
    /// Returns whether the node is empty or null.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.value, Value::Text(text, false) if text.is_empty() || text == "~" || text == "null")
    }

    /// Returns the type of the node, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(..) if self.is_empty() => "empty",
            Value::Text(..) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Parses one document, which defines a `noun`. Returns `None` if the parser cannot reach its end.
pub(crate) fn read(text: &str, noun: &str, errors: &mut DefinitionErrors) -> Option<Node> {
    let mut reader = Reader { parser: Parser::new_from_str(text), errors };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => break,
            (Event::DocumentStart(_), at) => {
                let event = reader.next()?;
                let node = reader.node(event, 0)?;
                documents.push((at, node));
            }
            _ => {}
        }
    }
    if let Some((at, _)) = documents.get(1) {
        let hint = format!("write one {noun} per file");
        reader.errors.hint(*at, "the file contains more than one document", hint);
    }
    documents.into_iter().next().map(|(_, node)| node)
}

struct Reader<'a, 'f> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    errors: &'f mut DefinitionErrors,
}

fn position_of(span: Span) -> Position {
    Position { line: span.start.line(), column: span.start.col() + 1 }
}

impl<'a> Reader<'a, '_> {
    fn next(&mut self) -> Option<(Event<'a>, Position)> {
        match self.parser.next_event()? {
            Ok((event, span)) => Some((event, position_of(span))),
            Err(error) => {
                let mark = error.marker();
                let at = Position { line: mark.line(), column: mark.col() + 1 };
                self.errors.add(at, format!("this is not YAML: {}", shown(error.info())));
                None
            }
        }
    }

    fn node(&mut self, (event, at): (Event<'a>, Position), depth: usize) -> Option<Node> {
        if depth > DEFINITION_DEPTH_MAX {
            self.errors.add(at, format!("the nesting is deeper than {DEFINITION_DEPTH_MAX} levels"));
            return None;
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.reject_anchor_and_tag(at, anchor, tag.is_some());
                Value::Text(text.into_owned(), style != ScalarStyle::Plain)
            }
            Event::SequenceStart(anchor, tag) => {
                self.reject_anchor_and_tag(at, anchor, tag.is_some());
                self.list(depth)?
            }
            Event::MappingStart(anchor, tag) => {
                self.reject_anchor_and_tag(at, anchor, tag.is_some());
                self.map(depth)?
            }
            Event::Alias(_) => {
                self.errors.hint(at, "an alias (`*name`) is not allowed here", "write the value out");
                Value::Text(String::new(), false)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return None,
        };
        Some(Node { at, value })
    }

    fn reject_anchor_and_tag(&mut self, at: Position, anchor: usize, tag: bool) {
        if anchor > 0 {
            self.errors.hint(at, "an anchor (`&name`) is not allowed here", "write the value out");
        }
        if tag {
            self.errors.hint(at, "a tag (`!name`) is not allowed here", "remove it");
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Some(Value::List(items)),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Option<Value> {
        let mut entries: Vec<(String, Position, Node)> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                return Some(Value::Map(entries));
            }
            let key = self.node((event, at), depth + 1)?;
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            let Value::Text(name, _) = key.value else {
                self.errors.add(at, "a key must be text");
                continue;
            };
            if let Some(first) = lines.get(&name) {
                let message = format!("duplicate key `{}`; first used in line {first}", shown(&name));
                self.errors.hint(at, message, "remove one of them");
                continue;
            }
            lines.insert(name.clone(), at.line);
            entries.push((name, at, value));
        }
    }
}
