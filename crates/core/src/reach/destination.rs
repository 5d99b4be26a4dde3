//! Destination rules: files, objects, and everything below a directory or a prefix of keys.
//!
//! Paths are compared by their parts and as written: a path with `..`, `.` or an empty part matches no rule.

use crate::limits::KEY_BYTES_MAX;
use std::fmt;
use std::str::FromStr;

/// A destination of watermark copies that projects may use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DestinationRule {
    place: Place,
    extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    /// This file or object alone.
    One,
    /// Every file or object below this place.
    Below,
}

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    scheme: &'static str,
    /// Directories and file name, or bucket and parts of the key.
    parts: Vec<String>,
}

impl DestinationRule {
    /// Returns whether a copy may be written to this URL.
    pub fn allows(&self, url: &str) -> bool {
        let Some(asked) = Place::parse(url) else { return false };
        if asked.scheme != self.place.scheme {
            return false;
        }
        match self.extent {
            Extent::One => asked.parts == self.place.parts,
            Extent::Below => {
                asked.parts.len() > self.place.parts.len() && asked.parts.starts_with(&self.place.parts)
            }
        }
    }
}

impl Place {
    /// Parses a URL without a final slash, in the same way as the copies.
    fn parse(url: &str) -> Option<Self> {
        let (scheme, path) = match url.split_once("://") {
            None => ("file", url),
            Some(("file", rest)) => ("file", rest.strip_prefix("localhost").unwrap_or(rest)),
            Some(("s3", rest)) => ("s3", rest),
            Some(("az", rest)) => ("az", rest),
            Some(_) => return None,
        };
        let path = if scheme == "file" { path.strip_prefix('/')? } else { path };
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let is_plain = |part: &String| !matches!(part.as_str(), "" | "." | "..");
        let has_controls = url.chars().any(char::is_control);
        (parts.iter().all(is_plain) && !has_controls).then_some(Self { scheme, parts })
    }
}

impl FromStr for DestinationRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(64).collect();
        let (url, extent) = match text.strip_suffix('/') {
            Some(parent) => (parent, Extent::Below),
            None => (text, Extent::One),
        };
        let place = Place::parse(url).filter(|_| text.len() <= KEY_BYTES_MAX);
        let place = place.ok_or_else(|| {
            format!(
                "`{shown}` is not a destination; write file:///directory/, s3://bucket/prefix/ or \
                 az://container/prefix/, without `..`"
            )
        })?;
        Ok(Self { place, extent })
    }
}

impl fmt::Display for DestinationRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = if self.place.scheme == "file" { "/" } else { "" };
        let end = match self.extent {
            Extent::One => "",
            Extent::Below => "/",
        };
        write!(f, "{}://{root}{}{end}", self.place.scheme, self.place.parts.join("/"))
    }
}

impl serde::Serialize for DestinationRule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
