//! A step between a form and what it does: what will happen, and to how many, before it happens.
//!
//! It is a page of its own, made by the server, so that it is there without script. From it the form is sent once more,
//! with the same fields and the word that it is meant. Only what touches many things, or cannot be undone, asks.

use crate::act::{self, Form, own_path};
use crate::layout::{Page, Place};
use crate::visitor::Visitor;
use axum::response::Response;
use maud::{Markup, html};

/// The field that says that a form is meant.
pub(crate) const SURE: &str = "sure";

/// A question before something is done.
pub(crate) struct Ask<'a> {
    /// Where it is.
    pub(crate) place: Place,
    /// The question, with how many.
    pub(crate) question: String,
    /// What will happen, to each kind of them.
    pub(crate) happens: Markup,
    /// What the button says.
    pub(crate) button: &'a str,
    /// Commands that do the same.
    pub(crate) commands: Vec<String>,
}

impl Ask<'_> {
    /// The page. It sends the form where it was sent, as it was sent.
    pub(crate) fn show(self, visitor: &Visitor, form: &Form) -> Response {
        let back = own_path(form.field("back").unwrap_or("/"));
        let body = html! {
            div.head { h1 { (self.question) } }
            section.panel #confirm {
                div.in {
                    (self.happens)
                    form.inline method="post" action=(visitor.uri.path()) {
                        (act::csrf(visitor))
                        @for (name, value) in form.sent() { input type="hidden" name=(name) value=(value); }
                        input type="hidden" name=(SURE) value="yes";
                        button.risk type="submit" { (self.button) }
                        a.button href=(back) { "No, go back" }
                    }
                    (act::commands(&self.commands))
                }
            }
        };
        Page::new(visitor, self.place, self.question.clone()).show(&body)
    }
}
