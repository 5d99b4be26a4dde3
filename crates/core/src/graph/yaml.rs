//! YAML as a tree in which everything knows its place.
//!
//! Anchors, aliases and tags are refused: a graph is a plain text, and nothing in it may grow while it is read.

use super::fault::{At, Faults, shown};
use crate::limits::GRAPH_DEPTH_MAX;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A word or text; whether it was quoted.
    Text(String, bool),
    List(Vec<Node>),
    /// Keys with their places, in the order in which they stand.
    Map(Vec<(String, At, Node)>),
}

impl Node {
    /// Whether nothing is written there.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.value, Value::Text(text, false) if text.is_empty() || text == "~" || text == "null")
    }

    /// What it is, in the words of a person.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(..) if self.is_empty() => "empty",
            Value::Text(..) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Reads one document. `None` where it cannot be read to its end.
pub(super) fn read(text: &str, faults: &mut Faults) -> Option<Node> {
    let mut reader = Reader { parser: Parser::new_from_str(text), faults };
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
        reader.faults.hint(*at, "the file holds more than one document", "write one graph per file");
    }
    documents.into_iter().next().map(|(_, node)| node)
}

struct Reader<'a, 'f> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    faults: &'f mut Faults,
}

fn place(span: Span) -> At {
    At { line: span.start.line(), column: span.start.col() + 1 }
}

impl<'a> Reader<'a, '_> {
    fn next(&mut self) -> Option<(Event<'a>, At)> {
        match self.parser.next_event()? {
            Ok((event, span)) => Some((event, place(span))),
            Err(error) => {
                let mark = error.marker();
                let at = At { line: mark.line(), column: mark.col() + 1 };
                self.faults.add(at, format!("this is not YAML: {}", shown(error.info())));
                None
            }
        }
    }

    fn node(&mut self, (event, at): (Event<'a>, At), depth: usize) -> Option<Node> {
        if depth > GRAPH_DEPTH_MAX {
            self.faults.add(at, format!("this is nested more than {GRAPH_DEPTH_MAX} deep"));
            return None;
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse(at, anchor, tag.is_some());
                Value::Text(text.into_owned(), style != ScalarStyle::Plain)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse(at, anchor, tag.is_some());
                self.list(depth)?
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse(at, anchor, tag.is_some());
                self.map(depth)?
            }
            Event::Alias(_) => {
                self.faults.hint(at, "an alias (`*name`) is not allowed here", "write the value out");
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

    fn refuse(&mut self, at: At, anchor: usize, tag: bool) {
        if anchor > 0 {
            self.faults.hint(at, "an anchor (`&name`) is not allowed here", "write the value out");
        }
        if tag {
            self.faults.hint(at, "a tag (`!name`) is not allowed here", "leave it out");
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
        let mut entries: Vec<(String, At, Node)> = Vec::new();
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
                self.faults.add(at, "a key must be text");
                continue;
            };
            if let Some(first) = lines.get(&name) {
                let words =
                    format!("`{}` stands here a second time; the first is in line {first}", shown(&name));
                self.faults.hint(at, words, "keep one of them");
                continue;
            }
            lines.insert(name.clone(), at.line);
            entries.push((name, at, value));
        }
    }
}
