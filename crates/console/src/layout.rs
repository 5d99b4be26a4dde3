//! The frame of every page.

use crate::act;
use crate::assets::{ICON, SCRIPT, STYLE};
use crate::text::says;
use crate::visitor::Visitor;
use axum::response::{Html, IntoResponse as _, Response};
use http::{HeaderName, HeaderValue};
use maud::{DOCTYPE, Markup, html};

/// The header that names the start of the process, so that a page notices another one.
const BOOT_HEADER: HeaderName = HeaderName::from_static("x-tidemill-boot");

/// Places that the navigation leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// What is going on.
    Overview,
    /// Runs.
    Runs,
    /// Feeds.
    Feeds,
    /// Queues.
    Queues,
    /// Workers.
    Workers,
    /// Agents.
    Agents,
    /// Schedules.
    Schedules,
    /// Flags.
    Flags,
    /// Tokens, for admins.
    Tokens,
    /// What people did, for admins.
    Audit,
}

impl Place {
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

    /// Whether it is for admins alone.
    const fn is_for_admins(self) -> bool {
        matches!(self, Self::Tokens | Self::Audit)
    }
}

/// A page.
pub(crate) struct Page<'a> {
    /// Who looks.
    pub(crate) visitor: &'a Visitor,
    /// Where it is.
    pub(crate) place: Place,
    /// Its title.
    pub(crate) title: String,
    /// The events whose arrival means that it has changed.
    pub(crate) stream: Option<Stream>,
    /// Seconds after which it is looked at again though no event came.
    pub(crate) every: Option<u16>,
}

/// The events that a page listens to.
pub(crate) struct Stream {
    /// Where they come from.
    pub(crate) url: String,
    /// The last one that the page shows.
    pub(crate) after: Option<String>,
}

impl<'a> Page<'a> {
    /// A page that looks the same until it is asked for again.
    pub(crate) fn new(visitor: &'a Visitor, place: Place, title: impl Into<String>) -> Self {
        Self { visitor, place, title: title.into(), stream: None, every: None }
    }

    /// The same, live: with the events of everything that its reader sees.
    pub(crate) fn live(self) -> Self {
        self.follows(Stream { url: "/v1/stream".to_owned(), after: None })
    }

    /// The same, live, with these events.
    pub(crate) fn follows(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The same, looked at every so many seconds besides: some of what it shows changes without an event.
    pub(crate) fn every(mut self, secs: u16) -> Self {
        self.every = Some(secs);
        self
    }

    /// The page with its content.
    pub(crate) fn show(self, content: &Markup) -> Response {
        let inner = self.inner(content);
        let visitor = self.visitor;
        let boot = &visitor.console().inner.boot;
        let whole = if visitor.live { inner } else { self.frame(&inner, boot) };
        let mut response = Html(whole.into_string()).into_response();
        if let Ok(boot) = HeaderValue::from_str(boot) {
            response.headers_mut().insert(BOOT_HEADER, boot);
        }
        response
    }

    fn inner(&self, content: &Markup) -> Markup {
        let stream = self.stream.as_ref();
        html! {
            main #main tabindex="-1" data-stream=[stream.map(|stream| &stream.url)]
                data-after=[stream.and_then(|stream| stream.after.as_ref())] data-every=[self.every] {
                @if let Some(said) = act::said(&self.visitor.uri) { (said) }
                p #restarted.note hidden {
                    "The server was restarted. This page shows what happened meanwhile." }
                (content)
            }
        }
    }

    fn frame(&self, inner: &Markup, boot: &str) -> Markup {
        let visitor = self.visitor;
        html! {
            (DOCTYPE)
            html lang="en" {
                (head(&self.title))
                body data-boot=(boot) {
                    a.skip href="#main" { "Skip to the content" }
                    header.side {
                        (brand())
                        nav aria-label="Main" {
                            @for (place, name, path) in Place::ALL {
                                @if !place.is_for_admins() || visitor.is_admin() {
                                    a href=(path) aria-current=[(place == self.place).then_some("page")] {
                                        (name) }
                                }
                            }
                        }
                        div.who {
                            p #live role="status" {}
                            span { (says(&visitor.caller.name)) ", " (visitor.caller.role)
                                @if let Some(project) = &visitor.caller.project { " of " (says(project)) } }
                            a href="/docs" { "The API" }
                            @if visitor.signed_in {
                                form method="post" action="/sign-out" {
                                    (act::csrf(visitor))
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

/// A page without the frame: for those who are not signed in, and for problems.
pub(crate) fn bare(title: &str, content: &Markup) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" { (head(title)) body.bare { main #main { (content) } } }
    };
    Html(page.into_string())
}

/// The name of the product over a form that stands alone.
pub(crate) fn sign() -> Markup {
    brand()
}
