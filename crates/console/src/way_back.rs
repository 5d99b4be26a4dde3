//! The way back to a form that was refused, with what was written into it.
//!
//! Every request has one; a form that arrives says where it stood and what it said, and a page that tells of a problem
//! leads there. What was written travels in the address, under names of its own, and the forms of that page show it.

use crate::act::{own_path, pairs_of};
use crate::visitor::Visitor;
use std::sync::{Arc, OnceLock};

/// What the names of values begin with that were written before.
const KEPT: &str = "kept-";
/// The fields that people write or choose. What else a form carries is ours, and the page makes it anew.
const WRITTEN: [&str; 10] =
    ["name", "role", "project", "days", "size", "scope", "flag", "note", "lasts", "reason"];
/// Characters of a value that are kept: what is longer than an address should be is written once more.
const CHARS_MAX: usize = 500;

/// The way back, once a form has said it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WayBack(Arc<OnceLock<String>>);

impl WayBack {
    /// Where a form stood, from what it carries.
    pub(crate) fn note(&self, fields: &[(String, String)]) {
        let Some((_, back)) = fields.iter().find(|(name, _)| name == "back") else { return };
        let (path, mut pairs) = pairs_of(own_path(back));
        for (name, value) in fields.iter().filter(|(name, _)| WRITTEN.contains(&name.as_str())) {
            if !value.trim().is_empty() && value.chars().count() <= CHARS_MAX {
                pairs.append_pair(&format!("{KEPT}{name}"), value);
            }
        }
        let query = pairs.finish();
        let _ = self.0.set(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") });
    }

    /// The address, where there is one.
    pub(crate) fn address(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Whether a part of an address is a value that was written before.
pub(crate) fn is_kept(name: &str) -> bool {
    name.starts_with(KEPT)
}

/// What was written into a field before, if the form was refused.
pub(crate) fn kept(visitor: &Visitor, name: &str) -> Option<String> {
    let query = visitor.uri.query().unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(key, _)| key.strip_prefix(KEPT) == Some(name)).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_form_is_gone_back_to_with_what_was_written() {
        let way = |fields: &[(&str, &str)]| {
            let fields: Vec<(String, String)> =
                fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let way = WayBack::default();
            way.note(&fields);
            way.address().map(str::to_owned)
        };
        let long = "x".repeat(CHARS_MAX + 1);
        assert_eq!(
            way(&[("csrf", "secret"), ("back", "/flags?done=paused&x=1"), ("note", "a & b"), ("lasts", "")]),
            Some("/flags?x=1&kept-note=a+%26+b".to_owned())
        );
        assert_eq!(
            way(&[("back", "/flags?kept-note=old"), ("note", "new")]).as_deref(),
            Some("/flags?kept-note=new")
        );
        assert_eq!(way(&[("back", "//evil.example"), ("note", &long)]).as_deref(), Some("/"));
        assert_eq!(way(&[("note", "no way")]), None);
    }
}
