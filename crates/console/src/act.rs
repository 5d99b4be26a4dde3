//! Forms: each is one call of the door, and leads back to a page that says what was done.
//!
//! A form has no rights of its own. What it carries against forgery is handed on, and the door judges it.

use crate::Console;
use crate::confirm::SURE;
use crate::oops::Oops;
use crate::text::visible;
use crate::visitor::Visitor;
use crate::way_back::{WayBack, is_kept, kept};
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_client::Client;

/// The largest form that is read.
const FORM_BYTES_MAX: usize = 1024 * 1024;
/// The field against forgery.
const CSRF_FIELD: &str = "csrf";

/// A form that was sent.
pub(crate) struct Form {
    fields: Vec<(String, String)>,
    /// The door, with what the form carried.
    pub(crate) client: Client,
}

impl FromRequest<Console> for Form {
    type Rejection = Oops;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Oops> {
        let (parts, body) = request.into_parts();
        let bytes = to_bytes(body, FORM_BYTES_MAX).await;
        let bytes = bytes.map_err(|_| Oops::bad_form("this form is larger than this server takes"))?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&bytes).into_owned().collect();
        if let Some(way) = parts.extensions.get::<WayBack>() {
            way.note(&fields);
        }
        let csrf = fields.iter().find(|(name, _)| name == CSRF_FIELD).map(|(_, value)| value.as_str());
        let client = console.inner.door.client_with(&parts, csrf);
        Ok(Self { fields, client })
    }
}

impl Form {
    /// What a field says, if it says something.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// What all fields of a name say.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.fields.iter().filter(move |(field, _)| field == name);
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Everything that it says, as it was sent, but for what keeps forgers out and the word that it is meant.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = |(name, _): &&(String, String)| name != CSRF_FIELD && name != SURE;
        self.fields.iter().filter(own).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a box is ticked.
    pub(crate) fn is_ticked(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Whether a field says yes or no. It must say one of them.
    pub(crate) fn is_yes(&self, name: &str) -> Result<bool, Oops> {
        match self.field(name) {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(_) | None => Err(Oops::bad_form("this form does not say what to do")),
        }
    }

    /// Back to where the form stood, and what is to be said there.
    pub(crate) fn back(&self, done: Done) -> Response {
        go_to(self.field("back").unwrap_or("/"), done)
    }
}

/// To a page of ours, and what is to be said there.
pub(crate) fn go_to(path: &str, done: Done) -> Response {
    let (path, mut pairs) = pairs_of(own_path(path));
    pairs.append_pair("done", done.code());
    if let Done::Bulk { count, of, .. } = done {
        pairs.append_pair("count", &count.to_string()).append_pair("of", &of.to_string());
    }
    Redirect::to(&format!("{path}?{}", pairs.finish())).into_response()
}

/// A path and what its address says, without what was said of an earlier form.
pub(crate) fn pairs_of(path: &str) -> (&str, form_urlencoded::Serializer<'static, String>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !matches!(name.as_ref(), "done" | "count" | "of") && !is_kept(&name) {
            pairs.append_pair(&name, &value);
        }
    }
    (path, pairs)
}

/// A path of ours: what leads elsewhere leads home.
pub(crate) fn own_path(path: &str) -> &str {
    let elsewhere = path.starts_with("//") || path.contains(['\\', '\r', '\n', '\t', '#']);
    if path.starts_with('/') && !elsewhere { path } else { "/" }
}

/// What a form did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// A run was cancelled.
    Cancelled,
    /// A worker was asked to stop.
    CancelAsked,
    /// It had ended.
    CancelLate,
    /// Another try was queued.
    Retried,
    /// The try that follows was there already.
    RetriedBefore,
    /// A sync was stopped.
    SyncCancelled,
    /// A sync is consolidated.
    Consolidating,
    /// Something was done that needs no more than its sentence.
    Plain(&'static str),
    /// Several runs were cancelled or retried.
    Bulk {
        /// What was done to them.
        code: &'static str,
        /// To how many.
        count: usize,
        /// Of so many.
        of: usize,
    },
}

/// What is said of each, by its code. A page says nothing that only its address says.
const SAID: &[(&str, &str)] = &[
    ("cancelled", "The run was cancelled."),
    ("cancel-asked", "The worker was asked to stop the run."),
    ("cancel-late", "The run had ended before; nothing was changed."),
    ("failed", "The run is failed."),
    ("retried", "Another try was queued. This is it."),
    ("retried-before", "The next try was queued before. This is it."),
    ("sync-cancelled", "The sync was stopped."),
    ("consolidating", "What was fetched is being consolidated."),
    ("sync-queued", "The sync was queued. This is its run."),
    ("paused", "It is held from now on."),
    ("resumed", "It goes on."),
    ("not-paused", "It was not held; nothing was changed."),
    ("revoked", "The token was taken back: it is worth nothing from now on."),
    ("graph-cancelled", "The graph is cancelled: what waited has ended, and agents stop what runs."),
    ("job-cancelled", "The job is cancelled. If something of it runs, its agent stops it."),
    ("job-late", "The job had ended, or was asked to stop before; nothing was changed."),
    ("draining", "The agent gets no new tasks from now on."),
    ("not-draining", "The agent gets tasks again."),
    ("worker-draining", "The worker takes nothing new, and ends once what it has in hand has ended."),
    ("worker-not-draining", "The worker takes work again."),
    ("forgotten", "The agent is forgotten: what it had goes to others."),
    ("forgotten-before", "The agent was forgotten before; nothing was changed."),
    ("pool-set", "The pool has this size from now on."),
    ("pool-removed", "The pool is gone."),
    ("flag-set", "The flag is on from now on."),
    ("reboot-prepared", "Jobs are being stopped. Wait until it says that it is safe."),
    ("reboot-over", "Jobs go on."),
    ("reboot-none", "No restart was prepared for; nothing was changed."),
    ("bulk-stop", "jobs were asked to stop"),
    ("bulk-cancel", "cancelled or asked to stop"),
    ("bulk-retry", "queued again"),
    ("bulk-replay", "dead letters were sent again"),
];

impl Done {
    fn code(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::CancelAsked => "cancel-asked",
            Self::CancelLate => "cancel-late",
            Self::Retried => "retried",
            Self::RetriedBefore => "retried-before",
            Self::SyncCancelled => "sync-cancelled",
            Self::Consolidating => "consolidating",
            Self::Plain(code) | Self::Bulk { code, .. } => code,
        }
    }
}

/// What the form before this page did, as its address says.
pub(crate) fn said(uri: &Uri) -> Option<Markup> {
    let pairs: Vec<_> = form_urlencoded::parse(uri.query()?.as_bytes()).collect();
    let value = |name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref());
    let done = value("done")?;
    let (code, words) = SAID.iter().find(|(code, _)| *code == done)?;
    if !code.starts_with("bulk-") {
        return Some(html! { p.flash role="status" { (words) } });
    }
    let number = |name| value(name)?.parse::<u32>().ok();
    let (count, of) = (number("count")?, number("of")?);
    let rest = of.saturating_sub(count);
    Some(html! {
        p.flash.part[rest > 0] role="status" {
            (count) " of " (of) " " (words) "."
            @if rest > 0 { " The others could not be: each says why on its own page." }
        }
    })
}

/// The field against forgery.
pub(crate) fn csrf(visitor: &Visitor) -> Markup {
    html! { @if let Some(csrf) = &visitor.csrf { input type="hidden" name=(CSRF_FIELD) value=(csrf); } }
}

/// The fields that every form has: against forgery, and where it stands.
pub(crate) fn hidden(visitor: &Visitor) -> Markup {
    let here = visitor.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    html! { (csrf(visitor)) input type="hidden" name="back" value=(here); }
}

/// Why somebody stops something, for the others. `open` of its fold: [`is_given`].
pub(crate) fn reason(visitor: &Visitor) -> Markup {
    html! {
        label.field { "Why, for the others" input type="text" name="reason" maxlength="500"
            value=[kept(visitor, "reason")]; }
    }
}

/// Whether a reason was given before, in a form that was refused.
pub(crate) fn is_given(visitor: &Visitor) -> bool {
    kept(visitor, "reason").is_some()
}

/// A form that is one button.
pub(crate) fn button(
    visitor: &Visitor,
    action: &str,
    fields: &[(&str, &str)],
    label: &str,
    class: &str,
) -> Markup {
    html! {
        form.inline method="post" action=(action) {
            (hidden(visitor))
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button class=(class) type="submit" { (label) }
        }
    }
}

/// Commands that do the same as the buttons of a page. One with a character that would hide or move others is not
/// shown: what is copied must be what is seen.
pub(crate) fn commands(commands: &[String]) -> Markup {
    let seen: Vec<&String> = commands.iter().filter(|command| visible(command) == **command).collect();
    html! {
        @if !seen.is_empty() {
            details.cli data-key="cli" {
                summary { "On the command line" }
                @for command in seen {
                    div { code { (command) } button.quiet type="button" data-copy { "Copy" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_ours_are_gone_back_to() {
        for path in ["/", "/runs?status=failed", "/runs/run-1"] {
            assert_eq!(own_path(path), path);
        }
        for path in
            ["", "//evil.example", "https://evil.example", "/\\evil.example", "runs", "/a\r\nb", "/a#b"]
        {
            assert_eq!(own_path(path), "/", "{path}");
        }
    }

    #[test]
    fn a_command_that_is_not_what_it_seems_is_not_shown() {
        let shown =
            commands(&["tidemill run list".to_owned(), "tidemill \u{202e}x".to_owned()]).into_string();
        assert_eq!(shown.matches("<code>").count(), 1, "{shown}");
        assert_eq!(commands(&["a\nb".to_owned()]).into_string(), "");
    }

    #[test]
    fn a_page_says_nothing_that_only_its_address_says() {
        let said = |text: &str| said(&text.parse().unwrap()).map(Markup::into_string);
        assert!(said("/runs?done=cancelled").unwrap().contains("The run was cancelled."));
        assert_eq!(said("/runs?done=Call+this+number"), None);
        assert_eq!(said("/runs"), None);
        let bulk = said("/runs?done=bulk-cancel&count=2&of=3").unwrap();
        assert!(bulk.contains("2 of 3 cancelled or asked to stop.") && bulk.contains("flash part"), "{bulk}");
        assert_eq!(said("/runs?done=bulk-cancel&count=%3Cb%3E&of=3"), None);
    }
}
