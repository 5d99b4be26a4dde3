//! A JSON parser that keeps the digits of numbers and limits the depth.

use super::{JsonValue, Unstorable};
use std::collections::HashMap;

/// Number of keys of an object from which repeated keys are found with an index.
const INDEX_MIN: usize = 16;

/// Why a text is not a JSON document that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("is not JSON: {message} at byte {at}")]
    Invalid { at: usize, message: &'static str },
    /// The text ends within a value.
    #[error("is truncated JSON")]
    Truncated,
    #[error("is nested more than {max} levels deep")]
    TooDeep { max: usize },
}

pub(super) fn parse(text: &[u8], depth_max: usize) -> Result<JsonValue, ParseError> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(ParseError::Invalid { at: 0, message: "the text is not UTF-8" });
    };
    let mut parser = Parser { text, at: 0, depth: 0, depth_max };
    // Some servers write a byte order mark.
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    let value = parser.value()?;
    parser.skip_spaces();
    if parser.at < text.len() {
        return Err(parser.invalid("unexpected text after the value"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    depth_max: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn invalid(&self, message: &'static str) -> ParseError {
        ParseError::Invalid { at: self.at, message }
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<JsonValue, ParseError> {
        self.skip_spaces();
        match self.peek().ok_or(ParseError::Truncated)? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::list),
            b'"' => Ok(match self.string()? {
                Ok(text) => JsonValue::Text(text),
                Err(reason) => JsonValue::Unstorable(reason),
            }),
            b't' => self.word("true", JsonValue::Bool(true)),
            b'f' => self.word("false", JsonValue::Bool(false)),
            b'n' => self.word("null", JsonValue::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(self.invalid("expected a value")),
        }
    }

    /// Reads the inside of brackets, one level deeper.
    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<JsonValue, ParseError>,
    ) -> Result<JsonValue, ParseError> {
        self.depth += 1;
        if self.depth > self.depth_max {
            return Err(ParseError::TooDeep { max: self.depth_max });
        }
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn word(&mut self, word: &str, value: JsonValue) -> Result<JsonValue, ParseError> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        if word.as_bytes().starts_with(rest) {
            return Err(ParseError::Truncated);
        }
        Err(self.invalid("expected a value"))
    }

    fn list(&mut self) -> Result<JsonValue, ParseError> {
        let mut items = Vec::new();
        loop {
            self.skip_spaces();
            if self.peek() == Some(b']') && items.is_empty() {
                self.at += 1;
                return Ok(JsonValue::List(items));
            }
            items.push(self.value()?);
            self.skip_spaces();
            match self.peek().ok_or(ParseError::Truncated)? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(JsonValue::List(items));
                }
                _ => return Err(self.invalid("expected `,` or `]`")),
            }
        }
    }

    fn object(&mut self) -> Result<JsonValue, ParseError> {
        let mut entries = Entries::default();
        loop {
            self.skip_spaces();
            match self.peek().ok_or(ParseError::Truncated)? {
                b'}' if entries.list.is_empty() => {
                    self.at += 1;
                    return Ok(JsonValue::Object(entries.list));
                }
                b'"' => {}
                _ => return Err(self.invalid("expected a key")),
            }
            let key = self.string()?;
            self.skip_spaces();
            match self.peek().ok_or(ParseError::Truncated)? {
                b':' => self.at += 1,
                _ => return Err(self.invalid("expected `:`")),
            }
            let value = self.value()?;
            match key {
                Ok(key) => entries.put(key, value),
                Err(reason) => entries.put('\u{fffd}'.to_string(), JsonValue::Unstorable(reason)),
            }
            self.skip_spaces();
            match self.peek().ok_or(ParseError::Truncated)? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(JsonValue::Object(entries.list));
                }
                _ => return Err(self.invalid("expected `,` or `}`")),
            }
        }
    }

    fn number(&mut self) -> Result<JsonValue, ParseError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let first = self.peek();
        let digits = self.digits()?;
        if digits > 1 && first == Some(b'0') {
            return Err(self.invalid("a number must not begin with 0"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(JsonValue::Number(self.text[start..self.at].to_owned()))
    }

    /// Skips at least one digit and returns how many.
    fn digits(&mut self) -> Result<usize, ParseError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        match self.at - start {
            0 if self.peek().is_none() => Err(ParseError::Truncated),
            0 => Err(self.invalid("expected a digit")),
            count => Ok(count),
        }
    }

    /// Reads a string. The inner error marks a text that databases cannot store.
    fn string(&mut self) -> Result<Result<String, Unstorable>, ParseError> {
        self.at += 1;
        let mut text = String::new();
        let mut unstorable = None;
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            text.push_str(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match self.peek().ok_or(ParseError::Truncated)? {
                b'"' => {
                    self.at += 1;
                    return Ok(unstorable.map_or(Ok(text), Err));
                }
                b'\\' => match self.escape()? {
                    Ok('\0') => unstorable = unstorable.or(Some(Unstorable::Nul)),
                    Ok(symbol) => text.push(symbol),
                    Err(reason) => unstorable = unstorable.or(Some(reason)),
                },
                _ => return Err(self.invalid("a control character in a text must be escaped")),
            }
        }
    }

    fn escape(&mut self) -> Result<Result<char, Unstorable>, ParseError> {
        self.at += 1;
        let symbol = match self.peek().ok_or(ParseError::Truncated)? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.invalid("unknown escape")),
        };
        self.at += 1;
        Ok(Ok(symbol))
    }

    /// Reads the digits of an escape such as `\u00e9`, and the second half of a surrogate pair.
    fn unicode(&mut self) -> Result<Result<char, Unstorable>, ParseError> {
        let first = self.code_unit()?;
        if (0xd800..0xdc00).contains(&first) && self.text.as_bytes()[self.at..].starts_with(b"\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.code_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).ok_or(Unstorable::Surrogate));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).ok_or(Unstorable::Surrogate))
    }

    fn code_unit(&mut self) -> Result<u32, ParseError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(ParseError::Truncated)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.invalid("expected four hexadecimal digits"));
        }
        let code = u32::from_str_radix(&self.text[self.at..self.at + 4], 16);
        self.at += 4;
        code.map_err(|_| self.invalid("expected four hexadecimal digits"))
    }
}

/// The entries of an object. A repeated key replaces the earlier value.
#[derive(Default)]
struct Entries {
    list: Vec<(String, JsonValue)>,
    /// Positions by key. Small objects have none.
    index: HashMap<String, usize>,
}

impl Entries {
    fn put(&mut self, key: String, value: JsonValue) {
        if self.list.len() == INDEX_MIN && self.index.is_empty() {
            self.index = self.list.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
        }
        let place = if self.index.is_empty() {
            self.list.iter().position(|(name, _)| *name == key)
        } else {
            self.index.get(&key).copied()
        };
        if let Some(place) = place {
            self.list[place].1 = value;
            return;
        }
        if !self.index.is_empty() {
            self.index.insert(key.clone(), self.list.len());
        }
        self.list.push((key, value));
    }
}
