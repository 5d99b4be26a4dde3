//! The frame of every page.

use crate::assets::{ICON, SCRIPT, STYLE};
use crate::forms;
use crate::page_context::PageContext;
use crate::text::safe;
use axum::response::{Html, IntoResponse as _, Response};
use http::{HeaderName, HeaderValue};
use maud::{DOCTYPE, Markup, html};

/// Response header with the id of the server process, so that a page notices a restart.
const BOOT_HEADER: HeaderName = HeaderName::from_static("x-tidemill-boot");

/// Sections of the console in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Overview,
    Runs,
    Feeds,
    Queues,
    Workers,
    Agents,
    Schedules,
    Flags,
    Tokens,
    Audit,
}

impl Section {
    const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::Overview, "Overview", "/"),
        (Self::Runs, "Runs", "/runs"),
        (Self::Feeds, "Feeds", "/feeds"),
        (Self::Queues, "Queues", "/queues"),
        (Self::Workers, "Workers", "/workers"),
        (Self::Agents, "Agents", "/agents"),
        (Self::Schedules, "Schedules", "/schedules"),
        (Self::Flags, "Flags", "/flags"),
        (Self::Tokens, "Tokens", "/tokens"),
        (Self::Audit, "Audit", "/audit"),
    ];

    /// Whether only admins see the section.
    const fn is_for_admins(self) -> bool {
        matches!(self, Self::Tokens | Self::Audit)
    }
}

pub(crate) struct Page<'a> {
    pub(crate) context: &'a PageContext,
    pub(crate) section: Section,
    pub(crate) title: String,
    /// Events that trigger an update of the page.
    pub(crate) stream: Option<Stream>,
    /// Refresh interval in seconds, for pages that also change without events.
    pub(crate) refresh_secs: Option<u16>,
}

/// Event stream that a page listens to.
pub(crate) struct Stream {
    pub(crate) url: String,
    /// The last event that the page shows.
    pub(crate) after: Option<String>,
}

impl<'a> Page<'a> {
    /// Creates a page without live updates.
    pub(crate) fn new(context: &'a PageContext, section: Section, title: impl Into<String>) -> Self {
        Self { context, section, title: title.into(), stream: None, refresh_secs: None }
    }

    /// Enables live updates with all events that the user sees.
    pub(crate) fn live(self) -> Self {
        self.with_stream(Stream { url: "/v1/stream".to_owned(), after: None })
    }

    /// Enables live updates with the given events.
    pub(crate) fn with_stream(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Also refreshes the page periodically.
    pub(crate) fn refresh_every(mut self, secs: u16) -> Self {
        self.refresh_secs = Some(secs);
        self
    }

    pub(crate) fn show(self, body: &Markup) -> Response {
        let inner = self.inner(body);
        let context = self.context;
        let boot = &context.console().inner.boot;
        let html = if context.live { inner } else { self.frame(&inner, boot) };
        let mut response = Html(html.into_string()).into_response();
        if let Ok(boot) = HeaderValue::from_str(boot) {
            response.headers_mut().insert(BOOT_HEADER, boot);
        }
        response
    }

    fn inner(&self, content: &Markup) -> Markup {
        let stream = self.stream.as_ref();
        html! {
            main #main tabindex="-1" data-stream=[stream.map(|stream| &stream.url)]
                data-after=[stream.and_then(|stream| stream.after.as_ref())] data-every=[self.refresh_secs] {
                @if let Some(flash) = forms::flash(&self.context.uri) { (flash) }
                p #restarted.note hidden {
                    "The server was restarted. The page has been updated." }
                (content)
            }
        }
    }

    fn frame(&self, inner: &Markup, boot: &str) -> Markup {
        let context = self.context;
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(&self.title))
                body data-boot=(boot) {
                    a.skip href="#main" { "Skip to content" }
                    header.side {
                        (brand())
                        nav aria-label="Main" {
                            @for (section, name, path) in Section::ALL {
                                @if !section.is_for_admins() || context.is_admin() {
                                    a href=(path) aria-current=[(section == self.section).then_some("page")] {
                                        (name) }
                                }
                            }
                        }
                        div.who {
                            p #live role="status" {}
                            span { (safe(&context.caller.name)) ", " (context.caller.role)
                                @if !context.caller.sees_all_projects() {
                                    " of " (safe(&context.caller.projects.list()))
                                } }
                            a href="/docs" { "API" }
                            @if context.signed_in {
                                form method="post" action="/sign-out" {
                                    (forms::csrf(context))
                                    button.quiet type="submit" { "Sign out" }
                                }
                            }
                        }
                    }
                    (inner)
                }
            }
        }
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Tidemill" }
            link rel="icon" href=(ICON.path) type="image/svg+xml";
            link rel="stylesheet" href=(STYLE.path);
            script src=(SCRIPT.path) defer {}
        }
    }
}

fn brand() -> Markup {
    html! { a.brand href="/" { img src=(ICON.path) alt=""; "Tidemill" } }
}

/// Page without navigation: for sign-in and errors.
pub(crate) fn bare(title: &str, content: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" { (head(title)) body.bare { main #main { (content) } } }
    };
    Html(page.into_string())
}

/// Product name above a page without navigation.
pub(crate) fn brand_link() -> Markup {
    brand()
}
