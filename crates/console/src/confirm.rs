//! Confirmation page between a form and its action. It shows what will happen, and to how many objects.
//!
//! The server renders it, so it works without scripts. It submits the same fields again with a confirmation. Only
//! actions on many objects and actions that cannot be undone need it.

use crate::forms::{self, Form, own_path};
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use axum::response::Response;
use maud::{Markup, html};

/// Form field with the confirmation.
pub(crate) const SURE: &str = "sure";

pub(crate) struct Confirmation<'a> {
    pub(crate) section: Section,
    /// Question with the number of objects.
    pub(crate) question: String,
    /// Description of the consequences.
    pub(crate) consequences: Markup,
    /// Label of the button.
    pub(crate) button: &'a str,
    pub(crate) commands: Vec<String>,
}

impl Confirmation<'_> {
    /// Renders the page. It submits the form's fields to the same address.
    pub(crate) fn show(self, context: &PageContext, form: &Form) -> Response {
        let back = own_path(form.field("back").unwrap_or("/"));
        let body = html! {
            div.head { h1 { (self.question) } }
            section.panel #confirm {
                div.in {
                    (self.consequences)
                    form.inline method="post" action=(context.uri.path()) {
                        (forms::csrf(context))
                        @for (name, value) in form.resubmitted_fields() {
                            input type="hidden" name=(name) value=(value); }
                        input type="hidden" name=(SURE) value="yes";
                        button.risk type="submit" { (self.button) }
                        a.button href=(back) { "Cancel" }
                    }
                    (forms::commands(&self.commands))
                }
            }
        };
        Page::new(context, self.section, self.question.clone()).show(&body)
    }
}
