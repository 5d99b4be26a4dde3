//! The tokens page. A secret is only shown once, in the response to its creation.

use crate::Console;
use crate::confirm::{Confirmation, SURE};
use crate::error_page::ErrorPage;
use crate::form_return::previous_value;
use crate::forms::{self, Form, FormOutcome};
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::safe;
use crate::time::{ago, ago_or_none};
use crate::widgets::{first_rows, omitted_rows};
use axum::extract::{FromRequest as _, FromRequestParts as _, Path, Request, State};
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::Client;
use tidemill_core::access::{Role, Token, TokenStatus, token_status};
use tidemill_core::shell::command;
use tidemill_wire::Page as Slice;
use tidemill_wire::access::{ListTokens, NewToken, NewTokenResponse};
use uuid::Uuid;

const ROWS: u16 = 50;
/// Value of the form's field for a token of all projects. It cannot be the name of a project.
const ALL_PROJECTS: &str = "*";
/// Limits of the search for one token: page size and number of pages.
const PAGE: u16 = 1_000;
const PAGES_MAX: usize = 100;
/// Lifetimes of a token: label and days.
const LIFETIMES: [(&str, u64); 4] = [("unlimited", 0), ("a day", 1), ("30 days", 30), ("a year", 365)];

pub(crate) fn routes() -> Routes {
    Routes::new().get("/tokens", page).post("/tokens", create).post("/tokens/{token}/revoke", revoke)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    show(&context, None).await
}

async fn show(context: &PageContext, made: Option<&NewTokenResponse>) -> Result<Response, ErrorPage> {
    let after = form_urlencoded::parse(context.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .and_then(|(_, value)| value.parse().ok());
    let params = ListTokens { after, limit: Some(ROWS), ..ListTokens::default() };
    let tokens = context.client.tokens(&params).await?;
    let projects = context.client.projects().await?.items;
    let names: Vec<&str> = projects.iter().map(|project| project.project_id.as_str()).collect();
    let body = html! {
        div.head { h1 { "Tokens" } }
        @if let Some(made) = made { (secret(made)) }
        (form(context, &names))
        div.panel #tokens data-live { (list(context, &tokens)) }
    };
    Ok(Page::new(context, Section::Tokens, "Tokens").show(&body))
}

fn secret(made: &NewTokenResponse) -> Markup {
    html! {
        div.flash role="status" {
            p { "Token " b { (safe(&made.token.name)) } " was created. Its secret is only shown now:" }
            div.cli { div { code { (made.secret) } button.quiet type="button" data-copy { "Copy" } } }
        }
    }
}

fn form(context: &PageContext, projects: &[&str]) -> Markup {
    let is = |name: &str, value: &str| previous_value(context, name).as_deref() == Some(value);
    html! {
        section.panel {
            header { h2 { "Create token" } }
            form.filters method="post" action="/tokens" {
                (forms::hidden(context))
                label.field { "Name" input type="text" name="name" required maxlength="128"
                    value=[previous_value(context, "name")]; }
                label.field { "Role" select name="role" { @for role in Role::ALL { option value=(role)
                    selected[is("role", role.as_str())] { (role) } } } }
                label.field { "Project" select name="project" required {
                    @if context.caller.sees_all_projects() {
                        option value="" selected[is("project", "")] { "choose…" }
                        option value=(ALL_PROJECTS) selected[is("project", ALL_PROJECTS)] { "all" }
                    }
                    @for project in first_rows(projects) { option value=(project) selected[is("project", project)] {
                        (project) } }
                } }
                label.field { "Lifetime" select name="days" { @for (label, days) in LIFETIMES { option value=(days)
                    selected[is("days", &days.to_string())] { (label) } } } }
                button.main type="submit" { "Create token" }
            }
            (omitted_rows(projects.len(), "tidemill token create NAME --role viewer --project PROJECT"))
            div.in { (forms::commands(&[command(["token", "create", "NAME", "--role", "viewer"]),
                command(["token", "create", "NAME", "--role", "viewer", "--project", "PROJECT", "--expires",
                    "30d"]), command(["token", "create", "NAME", "--role", "agent", "--project", "PROJECT",
                    "--project", "ANOTHER"])])) }
        }
    }
}

fn list(context: &PageContext, tokens: &Slice<Token>) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "Token" } th { "Role" } th { "Projects" } th { "Created" } th { "Last used" }
                th { "Expires" } th {} } }
            tbody { @for token in &tokens.items {
                tr data-key=(token.token_id) {
                    td { (safe(&token.name)) span.why.mono { (token.token_id) } }
                    td { (token.role) }
                    td { (safe(&token.projects.list())) }
                    td.nowrap { (ago(token.created_at, context.now)) " " span.dim { "by "
                        (safe(&token.created_by)) } }
                    td.nowrap { (ago_or_none(token.last_used_at, context.now)) }
                    td.nowrap { @match token_status(token, context.now) {
                        TokenStatus::Valid => { @if let Some(end) = token.expires_at { (ago(end, context.now)) }
                            @else { "never" } },
                        TokenStatus::Expired => span.warn { "expired" },
                        TokenStatus::Revoked => span.bad { "revoked "
                            (ago_or_none(token.revoked_at, context.now)) },
                    } }
                    td.acts { @if token_status(token, context.now) == TokenStatus::Valid {
                        (forms::button(context, &format!("/tokens/{}/revoke", token.token_id), &[], "Revoke…",
                            "risk"))
                        (forms::commands(&[command(["token", "revoke", &token.token_id.to_string()])]))
                    } }
                }
            } }
        } }
        @if tokens.items.is_empty() { p.empty { "There are no tokens." } }
        @if let Some(next) = &tokens.next { nav.pages { a.button href={ "/tokens?after=" (next) } { "Older" }
            } }
    }
}

/// Finds a token by its id. There is no API request for one token, so the list is read in large pages.
async fn find(client: &Client, token: Uuid) -> Result<Option<Token>, ErrorPage> {
    let mut params = ListTokens { limit: Some(PAGE), ..ListTokens::default() };
    for _ in 0..PAGES_MAX {
        let slice = client.tokens(&params).await?;
        let found = slice.items.into_iter().find(|one| one.token_id == token);
        if found.is_some() {
            return Ok(found);
        }
        let Some(next) = slice.next.and_then(|next| next.parse().ok()) else { break };
        params.after = Some(next);
    }
    Ok(None)
}

/// Confirmation for a revocation, which cannot be undone.
fn confirmation(context: &PageContext, token: &Token) -> Confirmation<'static> {
    let consequences = html! {
        p { "The token " b { (safe(&token.name)) } ", of role " (token.role) " for "
            (safe(&token.projects.to_string()))
            @if let Some(used) = token.last_used_at { ", last used " (ago(used, context.now)) } @else { ", never used" }
            " is revoked:" }
        ul {
            li { "Programs that use it are refused." }
            li { "Users who signed in with it are signed out, and their event streams end." }
            li { "This cannot be undone. You can create another token." }
        }
    };
    let commands = vec![command(["token", "revoke", &token.token_id.to_string()])];
    let question = "Revoke 1 token?".to_owned();
    Confirmation { section: Section::Tokens, question, consequences, button: "Revoke token", commands }
}

/// Creates a token and responds with its secret. No redirect: the secret must not be in an address or stored.
async fn create(State(console): State<Console>, request: Request) -> Result<Response, ErrorPage> {
    let (mut parts, body) = request.into_parts();
    let context = PageContext::from_request_parts(&mut parts, &console).await?;
    let form = Form::from_request(Request::from_parts(parts, body), &console).await?;
    let role = form.field("role").and_then(|role| role.parse().ok());
    let days: u64 = form.field("days").and_then(|days| days.parse().ok()).unwrap_or(0);
    let projects: Vec<String> = form.values("project").map(str::to_owned).collect();
    let all_projects = projects.iter().any(|project| project == ALL_PROJECTS);
    let new = NewToken {
        name: form.field("name").unwrap_or_default().to_owned(),
        role: role.ok_or_else(|| ErrorPage::bad_form("form field `role` is missing or unknown"))?,
        projects: if all_projects { Vec::new() } else { projects },
        all_projects,
        expires_in_secs: Some(days.saturating_mul(86_400)).filter(|secs| *secs > 0),
    };
    let made = form.client.create_token(&new, None).await?;
    show(&context, Some(&made)).await
}

async fn revoke(context: PageContext, Path(token): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let token: Uuid =
        token.parse().map_err(|_| ErrorPage::not_found(format!("`{token}` is not a token id")))?;
    // A user without the permission gets the API's refusal instead of a confirmation page.
    if !form.is_checked(SURE) && context.may(http::Method::DELETE, "/v1/tokens/{token}") {
        // If it is not found, the API call below reports that.
        if let Some(found) = find(&form.client, token).await? {
            return Ok(confirmation(&context, &found).show(&context, &form));
        }
    }
    form.client.revoke_token(token).await?;
    Ok(form.back(FormOutcome::Message("revoked")))
}
