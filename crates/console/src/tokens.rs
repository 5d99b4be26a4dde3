//! Tokens: who may do what. A secret is shown once, on the page that answers its making, and on no other.

use crate::Console;
use crate::act::{self, Done, Form};
use crate::confirm::{Ask, SURE};
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::says;
use crate::time::{ago, ago_or_none};
use crate::visitor::Visitor;
use crate::way_back::kept;
use crate::words::{first, others};
use axum::Router;
use axum::extract::{FromRequest as _, FromRequestParts as _, Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use tidemill_client::Client;
use tidemill_core::access::{Role, Standing, Token, standing};
use tidemill_core::shell::command;
use tidemill_wire::Page as Slice;
use tidemill_wire::access::{ListTokens, NewToken, TokenMade};
use uuid::Uuid;

/// Tokens of a page.
const ROWS: u16 = 50;
/// Tokens that are looked through for one of them, at a time and in all.
const PAGE: u16 = 1_000;
const PAGES_MAX: usize = 100;
/// How long a token is good, in words and in days.
const LASTS: [(&str, u64); 4] = [("for ever", 0), ("a day", 1), ("30 days", 30), ("a year", 365)];

pub(crate) fn routes() -> Router<Console> {
    Router::new().route("/tokens", get(page).post(make)).route("/tokens/{token}/revoke", post(revoke))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    show(&visitor, None).await
}

async fn show(visitor: &Visitor, made: Option<&TokenMade>) -> Result<Response, Oops> {
    let after = form_urlencoded::parse(visitor.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .and_then(|(_, value)| value.parse().ok());
    let wanted = ListTokens { after, limit: Some(ROWS), ..ListTokens::default() };
    let tokens = visitor.client.tokens(&wanted).await?;
    let projects = visitor.client.projects().await?.items;
    let names: Vec<&str> = projects.iter().map(|project| project.project_id.as_str()).collect();
    let body = html! {
        div.head { h1 { "Tokens" } }
        @if let Some(made) = made { (secret(made)) }
        (form(visitor, &names))
        div.panel #tokens data-live { (list(visitor, &tokens)) }
    };
    Ok(Page::new(visitor, Place::Tokens, "Tokens").show(&body))
}

fn secret(made: &TokenMade) -> Markup {
    html! {
        div.flash role="status" {
            p { "The token for " b { (says(&made.token.name)) } " was made. Its secret is shown this once:" }
            div.cli { div { code { (made.secret) } button.quiet type="button" data-copy { "Copy" } } }
        }
    }
}

fn form(visitor: &Visitor, projects: &[&str]) -> Markup {
    let is = |name: &str, value: &str| kept(visitor, name).as_deref() == Some(value);
    html! {
        section.panel {
            header { h2 { "Make a token" } }
            form.filters method="post" action="/tokens" {
                (act::hidden(visitor))
                label.field { "What it is for" input type="text" name="name" required maxlength="128"
                    value=[kept(visitor, "name")]; }
                label.field { "Role" select name="role" { @for role in Role::ALL { option value=(role)
                    selected[is("role", role.as_str())] { (role) } } } }
                label.field { "Project" select name="project" {
                    @if visitor.caller.project.is_none() { option value="" { "all" } }
                    @for project in first(projects) { option value=(project) selected[is("project", project)] {
                        (project) } }
                } }
                label.field { "Good" select name="days" { @for (words, days) in LASTS { option value=(days)
                    selected[is("days", &days.to_string())] { (words) } } } }
                button.main type="submit" { "Make it" }
            }
            (others(projects.len(), "tidemill token create NAME --role viewer --project PROJECT"))
            div.in { (act::commands(&[command(["token", "create", "NAME", "--role", "viewer"]),
                command(["token", "create", "NAME", "--role", "viewer", "--project", "PROJECT", "--expires",
                    "30d"])])) }
        }
    }
}

fn list(visitor: &Visitor, tokens: &Slice<Token>) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "Token" } th { "Role" } th { "Project" } th { "Made" } th { "Last used" }
                th { "Good until" } th {} } }
            tbody { @for token in &tokens.items {
                tr data-key=(token.token_id) {
                    td { (says(&token.name)) span.why.mono { (token.token_id) } }
                    td { (token.role) }
                    td { @if let Some(project) = &token.project_id { (says(project)) } @else { "all" } }
                    td.nowrap { (ago(token.created_at, visitor.now)) " " span.dim { "by "
                        (says(&token.created_by)) } }
                    td.nowrap { (ago_or_none(token.last_used_at, visitor.now)) }
                    td.nowrap { @match standing(token, visitor.now) {
                        Standing::Good => { @if let Some(end) = token.expires_at { (ago(end, visitor.now)) }
                            @else { "for ever" } },
                        Standing::Expired => span.warn { "expired" },
                        Standing::Revoked => span.bad { "revoked "
                            (ago_or_none(token.revoked_at, visitor.now)) },
                    } }
                    td.acts { @if standing(token, visitor.now) == Standing::Good {
                        (act::button(visitor, &format!("/tokens/{}/revoke", token.token_id), &[], "Revoke…",
                            "risk"))
                        (act::commands(&[command(["token", "revoke", &token.token_id.to_string()])]))
                    } }
                }
            } }
        } }
        @if tokens.items.is_empty() { p.empty { "There is no token." } }
        @if let Some(next) = &tokens.next { nav.pages { a.button href={ "/tokens?after=" (next) } { "Older" }
            } }
    }
}

/// A token by its id. Tokens are few, and are read a large page at a time.
async fn find(client: &Client, token: Uuid) -> Result<Option<Token>, Oops> {
    let mut wanted = ListTokens { limit: Some(PAGE), ..ListTokens::default() };
    for _ in 0..PAGES_MAX {
        let slice = client.tokens(&wanted).await?;
        let found = slice.items.into_iter().find(|one| one.token_id == token);
        if found.is_some() {
            return Ok(found);
        }
        let Some(next) = slice.next.and_then(|next| next.parse().ok()) else { break };
        wanted.after = Some(next);
    }
    Ok(None)
}

/// What taking a token back means. It cannot be undone.
fn question(visitor: &Visitor, token: &Token) -> Ask<'static> {
    let happens = html! {
        p { "The token " b { (says(&token.name)) } ", of role " (token.role) " for "
            @if let Some(project) = &token.project_id { (says(project)) } @else { "all projects" }
            @if let Some(used) = token.last_used_at { ", last used " (ago(used, visitor.now)) } @else { ", never used" }
            ", is worth nothing from now on:" }
        ul {
            li { "Every program that shows it is refused." }
            li { "Everybody who signed in with it is signed out, and the streams that they read end." }
            li { "It cannot be given back: another one can be made." }
        }
    };
    let commands = vec![command(["token", "revoke", &token.token_id.to_string()])];
    let question = "Revoke 1 token?".to_owned();
    Ask { place: Place::Tokens, question, happens, button: "Revoke the token", commands }
}

/// Makes a token, and answers with its secret: what is shown once must not be in an address, nor kept for later.
async fn make(State(console): State<Console>, request: Request) -> Result<Response, Oops> {
    let (mut parts, body) = request.into_parts();
    let visitor = Visitor::from_request_parts(&mut parts, &console).await?;
    let form = Form::from_request(Request::from_parts(parts, body), &console).await?;
    let role = form.field("role").and_then(|role| role.parse().ok());
    let days: u64 = form.field("days").and_then(|days| days.parse().ok()).unwrap_or(0);
    let new = NewToken {
        name: form.field("name").unwrap_or_default().to_owned(),
        role: role.ok_or_else(|| Oops::bad_form("this form does not name a role"))?,
        project: form.field("project").map(str::to_owned),
        expires_in_secs: Some(days.saturating_mul(86_400)).filter(|secs| *secs > 0),
    };
    let made = form.client.create_token(&new, None).await?;
    show(&visitor, Some(&made)).await
}

async fn revoke(visitor: Visitor, Path(token): Path<String>, form: Form) -> Result<Response, Oops> {
    let token: Uuid = token.parse().map_err(|_| Oops::nothing("this is not the id of a token"))?;
    // Whoever may not do it hears that from the door.
    if !form.is_ticked(SURE) && visitor.may(http::Method::DELETE, "/v1/tokens/{token}") {
        // One that is not found is not there, as the door says next.
        if let Some(found) = find(&form.client, token).await? {
            return Ok(question(&visitor, &found).show(&visitor, &form));
        }
    }
    form.client.revoke_token(token).await?;
    Ok(form.back(Done::Plain("revoked")))
}
