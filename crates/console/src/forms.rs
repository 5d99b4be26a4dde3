//! Forms. Each one is a single API call, followed by a redirect to a page with a message.
//!
//! The form's CSRF token is passed to the API, which checks it. The console itself grants no rights.

use crate::Console;
use crate::confirm::SURE;
use crate::error_page::ErrorPage;
use crate::form_return::{ReturnAddress, is_previous_value, previous_value};
use crate::page_context::PageContext;
use crate::text::visible;
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_api::access::identify;
use tidemill_client::Client;

/// Maximum size of a form.
const FORM_BYTES_MAX: usize = 1024 * 1024;
/// Form field with the CSRF token.
const CSRF_FIELD: &str = "csrf";

pub(crate) struct Form {
    fields: Vec<(String, String)>,
    /// API client with the form's CSRF token.
    pub(crate) client: Client,
}

impl FromRequest<Console> for Form {
    type Rejection = ErrorPage;

    async fn from_request(request: Request, console: &Console) -> Result<Self, ErrorPage> {
        let (parts, body) = request.into_parts();
        // The body of an unknown caller is not read.
        identify(&console.inner.app, &parts)
            .await
            .map_err(|error| ErrorPage::from_api_error(&error, &parts.uri))?;
        let bytes = to_bytes(body, FORM_BYTES_MAX).await;
        let bytes = bytes
            .map_err(|_| ErrorPage::bad_form(format!("the form is larger than {FORM_BYTES_MAX} bytes")))?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&bytes).into_owned().collect();
        if let Some(address) = parts.extensions.get::<ReturnAddress>() {
            address.set_from(&fields);
        }
        let csrf = fields.iter().find(|(name, _)| name == CSRF_FIELD).map(|(_, value)| value.as_str());
        let client = console.inner.api.client_with(&parts, csrf);
        Ok(Self { fields, client })
    }
}

impl Form {
    /// Value of a field, if it is not empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Non-empty values of all fields with this name.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.fields.iter().filter(move |(field, _)| field == name);
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// All fields as submitted, without the CSRF token and the confirmation.
    pub(crate) fn resubmitted_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = |(name, _): &&(String, String)| name != CSRF_FIELD && name != SURE;
        self.fields.iter().filter(own).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a checkbox is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Value of a field that must be `yes` or `no`.
    pub(crate) fn is_yes(&self, name: &str) -> Result<bool, ErrorPage> {
        match self.field(name) {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            Some(_) | None => Err(ErrorPage::bad_form(format!("form field `{name}` must be `yes` or `no`"))),
        }
    }

    /// Redirects to the page that contained the form, with a message.
    pub(crate) fn back(&self, done: FormOutcome) -> Response {
        redirect_with_message(self.field("back").unwrap_or("/"), done)
    }
}

/// Redirects to a page of the console, with a message.
pub(crate) fn redirect_with_message(path: &str, done: FormOutcome) -> Response {
    let (path, mut pairs) = split_query(own_path(path));
    pairs.append_pair("done", done.code());
    if let FormOutcome::Bulk { count, of, .. } = done {
        pairs.append_pair("count", &count.to_string()).append_pair("of", &of.to_string());
    }
    Redirect::to(&format!("{path}?{}", pairs.finish())).into_response()
}

/// Splits a path from its query, and drops the parameters of an earlier form.
pub(crate) fn split_query(path: &str) -> (&str, form_urlencoded::Serializer<'static, String>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !matches!(name.as_ref(), "done" | "count" | "of") && !is_previous_value(&name) {
            pairs.append_pair(&name, &value);
        }
    }
    (path, pairs)
}

/// Returns the path if it is one of this server, and `/` otherwise.
pub(crate) fn own_path(path: &str) -> &str {
    let elsewhere = path.starts_with("//") || path.contains(['\\', '\r', '\n', '\t', '#']);
    if path.starts_with('/') && !elsewhere { path } else { "/" }
}

/// Outcome of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormOutcome {
    Cancelled,
    /// The worker was asked to stop.
    CancelRequested,
    /// The run had already ended.
    CancelLate,
    Retried,
    RetriedBefore,
    SyncCancelled,
    Consolidating,
    /// An outcome that is only a message.
    Message(&'static str),
    /// Several runs were changed.
    Bulk {
        code: &'static str,
        /// Number of changed runs.
        count: usize,
        /// Number of selected runs.
        of: usize,
    },
}

/// Messages by code. Pages only show texts from this table, never text from the address.
const MESSAGES: &[(&str, &str)] = &[
    ("cancelled", "The run was cancelled."),
    ("cancel-asked", "The worker was asked to stop the run."),
    ("cancel-late", "The run had already ended; nothing was changed."),
    ("failed", "The run is failed."),
    ("retried", "A retry was queued. This is its page."),
    ("retried-before", "The retry was already queued. This is its page."),
    ("sync-cancelled", "The sync was cancelled."),
    ("consolidating", "The fetched records are being consolidated."),
    ("sync-queued", "The sync was queued. This is its run."),
    ("paused", "Paused. Work in progress is completed."),
    ("resumed", "Resumed."),
    ("not-paused", "It was not paused; nothing was changed."),
    ("revoked", "The token was revoked."),
    (
        "graph-cancelled",
        "The graph was cancelled. Waiting jobs have ended, and agents stop the running ones.",
    ),
    ("job-cancelled", "The job was cancelled. If its command is running, the agent stops it."),
    ("job-late", "The job had already ended or was being stopped; nothing was changed."),
    ("draining", "The agent gets no new tasks."),
    ("not-draining", "The agent gets tasks again."),
    ("worker-draining", "The worker gets no new work and exits when its current work is done."),
    ("worker-not-draining", "The worker gets work again."),
    ("forgotten", "The agent is forgotten. Its jobs go to other agents."),
    ("forgotten-before", "The agent was already forgotten; nothing was changed."),
    ("pool-set", "The pool size was set."),
    ("pool-removed", "The pool was removed."),
    ("flag-set", "The flag was set."),
    ("reboot-prepared", "Jobs are being stopped. Wait until this page says that it is safe."),
    ("reboot-over", "Jobs continue."),
    ("reboot-none", "No restart was prepared; nothing was changed."),
    ("bulk-stop", "jobs were asked to stop"),
    ("bulk-cancel", "cancelled or asked to stop"),
    ("bulk-retry", "retried"),
    ("bulk-replay", "dead letters were replayed"),
];

impl FormOutcome {
    fn code(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::CancelRequested => "cancel-asked",
            Self::CancelLate => "cancel-late",
            Self::Retried => "retried",
            Self::RetriedBefore => "retried-before",
            Self::SyncCancelled => "sync-cancelled",
            Self::Consolidating => "consolidating",
            Self::Message(code) | Self::Bulk { code, .. } => code,
        }
    }
}

/// Message about the form that led to this page, from the address.
pub(crate) fn flash(uri: &Uri) -> Option<Markup> {
    let pairs: Vec<_> = form_urlencoded::parse(uri.query()?.as_bytes()).collect();
    let value = |name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref());
    let done = value("done")?;
    let (code, message) = MESSAGES.iter().find(|(code, _)| *code == done)?;
    if !code.starts_with("bulk-") {
        return Some(html! { p.flash role="status" { (message) } });
    }
    let number = |name| value(name)?.parse::<u32>().ok();
    let (count, of) = (number("count")?, number("of")?);
    let rest = of.saturating_sub(count);
    Some(html! {
        p.flash.part[rest > 0] role="status" {
            (count) " of " (of) " " (message) "."
            @if rest > 0 { " The others were refused. Open one to see the reason." }
        }
    })
}

/// Hidden field with the CSRF token.
pub(crate) fn csrf(context: &PageContext) -> Markup {
    html! { @if let Some(csrf) = &context.csrf { input type="hidden" name=(CSRF_FIELD) value=(csrf); } }
}

/// Hidden fields of every form: CSRF token and return address.
pub(crate) fn hidden(context: &PageContext) -> Markup {
    let here = context.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    html! { (csrf(context)) input type="hidden" name="back" value=(here); }
}

/// Input for the reason of a cancellation.
pub(crate) fn reason(context: &PageContext) -> Markup {
    html! {
        label.field { "Reason" input type="text" name="reason" maxlength="500"
            value=[previous_value(context, "reason")]; }
    }
}

/// Whether the form was refused after a reason had been entered.
pub(crate) fn reason_was_given(context: &PageContext) -> bool {
    previous_value(context, "reason").is_some()
}

/// Form that consists of one button.
pub(crate) fn button(
    context: &PageContext,
    action: &str,
    fields: &[(&str, &str)],
    label: &str,
    class: &str,
) -> Markup {
    html! {
        form.inline method="post" action=(action) {
            (hidden(context))
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button class=(class) type="submit" { (label) }
        }
    }
}

/// Commands that do the same as the page's buttons. A command with invisible characters is omitted, because the copied
/// text would differ from the visible one.
pub(crate) fn commands(commands: &[String]) -> Markup {
    let visible_commands: Vec<&String> =
        commands.iter().filter(|command| visible(command) == **command).collect();
    html! {
        @if !visible_commands.is_empty() {
            details.cli data-key="cli" {
                summary { "On the command line" }
                @for command in visible_commands {
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
    fn return_path_to_another_site_is_replaced() {
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
    fn command_with_invisible_characters_is_omitted() {
        let shown =
            commands(&["tidemill run list".to_owned(), "tidemill \u{202e}x".to_owned()]).into_string();
        assert_eq!(shown.matches("<code>").count(), 1, "{shown}");
        assert_eq!(commands(&["a\nb".to_owned()]).into_string(), "");
    }

    #[test]
    fn flash_message_ignores_text_from_the_address() {
        let flash = |text: &str| flash(&text.parse().unwrap()).map(Markup::into_string);
        assert!(flash("/runs?done=cancelled").unwrap().contains("The run was cancelled."));
        assert_eq!(flash("/runs?done=Call+this+number"), None);
        assert_eq!(flash("/runs"), None);
        let bulk = flash("/runs?done=bulk-cancel&count=2&of=3").unwrap();
        assert!(bulk.contains("2 of 3 cancelled or asked to stop.") && bulk.contains("flash part"), "{bulk}");
        assert_eq!(flash("/runs?done=bulk-cancel&count=%3Cb%3E&of=3"), None);
    }
}
