//! Endpoints that manage pricing rules.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Id, IdempotencyKey, ValidBody};
use crate::scope::{VisibleFeeds, shared_object_error};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::collections::BTreeSet;
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{Feed, REST_KIND};
use tidemill_core::pricing::{PriceQuote, PricingRule, Rules};
use tidemill_engine::sync::ReplaceScope;
use tidemill_store::Error;
use tidemill_wire::rules::{AddRulesResponse, ImportRules, NewRule, SampleStone};
use tidemill_wire::{FieldError, Page};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/rules", Permission::Read, list)
            .describe("rules", "List rules in order of evaluation")
            .responds::<Page<PricingRule>>(200, "The rules"),
        Endpoint::new(Method::POST, "/v1/rules", Permission::Operate, add)
            .describe("rules", "Add a rule")
            .body::<NewRule>()
            .keyed()
            .responds::<PricingRule>(
                201,
                "The rule; a repeated request with the same key returns the first one",
            ),
        Endpoint::new(Method::POST, "/v1/rules/import", Permission::Operate, import)
            .describe("rules", "Add rules, all or none; with `replace`, remove the existing ones")
            .body::<ImportRules>()
            .keyed()
            .responds::<AddRulesResponse>(201, "The ids of the new rules"),
        Endpoint::new(Method::POST, "/v1/rules/test", Permission::Read, test)
            .describe("rules", "Return the rule that would price a stone, and the price")
            .body::<SampleStone>()
            .responds::<PriceQuote>(200, "The price"),
        Endpoint::new(Method::DELETE, "/v1/rules/{rule}", Permission::Operate, remove)
            .describe("rules", "Remove a rule")
            .responds_empty(204, "The rule is removed"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<PricingRule>>, ApiError> {
    let feeds = caller.feeds(&app).await?;
    let mut rules = app.engine().store().rules().await?;
    rules.retain(|rule| feeds.contains_rule(rule));
    Ok(Json(Page::complete(rules)))
}

/// Checks that the caller may add rules: a caller of one project only for its own feeds.
fn check_may_add(feeds: &VisibleFeeds, rules: &[PricingRule]) -> Result<(), ApiError> {
    match rules.iter().find(|rule| !feeds.contains_rule(rule)) {
        None => Ok(()),
        Some(PricingRule { feed: Some(feed), .. }) => Err(Error::unknown_feed(feed).into()),
        Some(PricingRule { feed: None, .. }) => {
            Err(shared_object_error("rules without a feed of its project"))
        }
    }
}

/// Checks that a feed has prices. Feeds with a definition have none.
fn check_has_prices(feed: &Feed) -> Result<(), ApiError> {
    if feed.kind != REST_KIND {
        return Ok(());
    }
    let problem = format!("is `{}`, a feed of kind `{REST_KIND}`, whose records have no prices", feed.feed);
    Err(ApiError::invalid(vec![FieldError { field: "feed".to_owned(), problem }]))
}

/// Adds the rules to the audit entry, and their project if all belong to one. The engine adds their ids.
async fn annotate(app: &App, rules: &[PricingRule], replaced: bool) -> Result<(), ApiError> {
    let feeds: BTreeSet<Option<&str>> = rules.iter().map(|rule| rule.feed.as_deref()).collect();
    let mut projects = BTreeSet::new();
    for feed in feeds {
        projects.insert(match feed {
            Some(feed) => {
                let feed = app.engine().store().feed(feed.to_owned()).await?.feed;
                check_has_prices(&feed)?;
                Some(feed.project_id)
            }
            None => None,
        });
    }
    let project = if projects.len() == 1 { projects.pop_first().flatten() } else { None };
    app.annotate_audit(|line| {
        line.set_project(project.as_deref())
            .add_detail("added", rules.len())
            .add_detail("replaced", replaced);
    });
    Ok(())
}

async fn add(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    ValidBody(rule): ValidBody<NewRule>,
) -> Result<(StatusCode, Json<PricingRule>), ApiError> {
    let key = caller.request_key("POST /v1/rules", key, &rule);
    let mut rule = rule.with_id(0);
    check_may_add(&caller.feeds(&app).await?, std::slice::from_ref(&rule))?;
    annotate(&app, std::slice::from_ref(&rule), false).await?;
    let added = app.syncs().add_rules(vec![rule.clone()], ReplaceScope::Nothing, key).await?;
    rule.rule_id = added.first().copied().ok_or_else(|| ApiError::internal("the new rule has no id"))?;
    Ok((StatusCode::CREATED, Json(rule)))
}

async fn import(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    ValidBody(import): ValidBody<ImportRules>,
) -> Result<(StatusCode, Json<AddRulesResponse>), ApiError> {
    let key = caller.request_key("POST /v1/rules/import", key, &import);
    let feeds = caller.feeds(&app).await?;
    let rules: Vec<PricingRule> = import.rules.into_iter().map(|rule| rule.with_id(0)).collect();
    check_may_add(&feeds, &rules)?;
    let replaced = match (import.replace, feeds) {
        (false, _) => ReplaceScope::Nothing,
        (true, VisibleFeeds::All) => ReplaceScope::All,
        (true, VisibleFeeds::OfProjects(own)) => ReplaceScope::OfFeeds(own.into_iter().collect()),
    };
    annotate(&app, &rules, import.replace).await?;
    let added = app.syncs().add_rules(rules, replaced, key).await?;
    Ok((StatusCode::CREATED, Json(AddRulesResponse { added })))
}

async fn test(
    State(app): State<App>,
    caller: Caller,
    Body(stone): Body<SampleStone>,
) -> Result<Json<PriceQuote>, ApiError> {
    let feeds = caller.feeds(&app).await?;
    if !feeds.contains(&stone.feed) {
        return Err(Error::unknown_feed(&stone.feed).into());
    }
    let known = app.engine().store().feeds().await?.into_iter().find(|known| known.feed.feed == stone.feed);
    known.map_or(Ok(()), |known| check_has_prices(&known.feed))?;
    // All rules are evaluated: rules without a feed apply to every project.
    let rules = Rules::new(app.engine().store().rules().await?);
    let diamond = Diamond {
        lab_grown: stone.lab_grown,
        fancy_color: stone.fancy_color,
        ..Diamond::new("try", stone.price, stone.shape, stone.points)
    };
    // A test changes nothing, although it is a POST: it is not audited.
    app.skip_audit();
    Ok(Json(rules.price(&stone.feed, &diamond)))
}

async fn remove(State(app): State<App>, caller: Caller, Id(rule): Id<i64>) -> Result<StatusCode, ApiError> {
    let feeds = caller.feeds(&app).await?;
    let store = app.engine().store();
    let seen = store.rules().await?.iter().any(|found| found.rule_id == rule && feeds.contains_rule(found));
    if seen && store.remove_rule(rule).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::new(StatusCode::NOT_FOUND, "unknown_rule", format!("rule {rule} does not exist"))
        .hint("tidemill rule list"))
}
