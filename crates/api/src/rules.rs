//! Pricing rules.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Checked, Id, IdempotencyKey};
use crate::scope::{Feeds, shared};
use axum::Json;
use axum::extract::State;
use http::{Method, StatusCode};
use std::collections::BTreeSet;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::{Priced, PricingRule, Rules};
use tidemill_engine::sync::Replaced;
use tidemill_store::{Error, note, unchanged};
use tidemill_wire::Page;
use tidemill_wire::rules::{ImportRules, NewRule, RulesAdded, TryStone};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/rules", Allowed::Look, list)
            .says("rules", "List rules in the order in which they are tried")
            .answers::<Page<PricingRule>>(200, "The rules"),
        Endpoint::new(Method::POST, "/v1/rules", Allowed::Operate, add)
            .says("rules", "Add a rule")
            .body::<NewRule>()
            .keyed()
            .answers::<PricingRule>(201, "The rule; under a key that was used before, the one from then"),
        Endpoint::new(Method::POST, "/v1/rules/import", Allowed::Operate, import)
            .says("rules", "Add rules, all or none, and remove those that are there where asked")
            .body::<ImportRules>()
            .keyed()
            .answers::<RulesAdded>(201, "Their numbers"),
        Endpoint::new(Method::POST, "/v1/rules/test", Allowed::Look, test)
            .says("rules", "Say which rule would price such a stone, and how")
            .body::<TryStone>()
            .answers::<Priced>(200, "The price"),
        Endpoint::new(Method::DELETE, "/v1/rules/{rule}", Allowed::Operate, remove)
            .says("rules", "Remove a rule")
            .empty(204, "It is gone"),
    ]
}

async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Page<PricingRule>>, Fail> {
    let feeds = caller.feeds(&app).await?;
    let mut rules = app.engine().store().rules().await?;
    rules.retain(|rule| feeds.have(rule));
    Ok(Json(Page::whole(rules)))
}

/// Makes sure that a caller may bring rules: of its own feeds alone, where it sees one project.
fn may_add(feeds: &Feeds, rules: &[PricingRule]) -> Result<(), Fail> {
    match rules.iter().find(|rule| !feeds.have(rule)) {
        None => Ok(()),
        Some(PricingRule { feed: Some(feed), .. }) => Err(Error::unknown_feed(feed).into()),
        Some(PricingRule { feed: None, .. }) => Err(shared("rules that name no feed of its project")),
    }
}

/// Says for the record what rules are added, and to which project where all are of one. Their numbers are noted when
/// they have them.
async fn noted(app: &App, rules: &[PricingRule], replaced: bool) -> Result<(), Fail> {
    let feeds: BTreeSet<Option<&str>> = rules.iter().map(|rule| rule.feed.as_deref()).collect();
    let mut projects = BTreeSet::new();
    for feed in feeds {
        projects.insert(match feed {
            Some(feed) => Some(app.engine().store().feed(feed.to_owned()).await?.feed.project_id),
            None => None,
        });
    }
    let project = if projects.len() == 1 { projects.pop_first().flatten() } else { None };
    note(|line| {
        line.belongs_to(project.as_deref()).tells("added", rules.len()).tells("replaced", replaced);
    });
    Ok(())
}

async fn add(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Checked(rule): Checked<NewRule>,
) -> Result<(StatusCode, Json<PricingRule>), Fail> {
    let key = caller.keyed("POST /v1/rules", key, &rule);
    let mut rule = rule.numbered(0);
    may_add(&caller.feeds(&app).await?, std::slice::from_ref(&rule))?;
    noted(&app, std::slice::from_ref(&rule), false).await?;
    let added = app.syncs().add_rules(vec![rule.clone()], Replaced::Nothing, key).await?;
    rule.rule_id = added.first().copied().ok_or_else(|| Fail::internal("a rule has no number"))?;
    Ok((StatusCode::CREATED, Json(rule)))
}

async fn import(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    Checked(import): Checked<ImportRules>,
) -> Result<(StatusCode, Json<RulesAdded>), Fail> {
    let key = caller.keyed("POST /v1/rules/import", key, &import);
    let feeds = caller.feeds(&app).await?;
    let rules: Vec<PricingRule> = import.rules.into_iter().map(|rule| rule.numbered(0)).collect();
    may_add(&feeds, &rules)?;
    let goes = match (import.replace, feeds) {
        (false, _) => Replaced::Nothing,
        (true, Feeds::All) => Replaced::All,
        (true, Feeds::Of(own)) => Replaced::OfFeeds(own.into_iter().collect()),
    };
    noted(&app, &rules, import.replace).await?;
    let added = app.syncs().add_rules(rules, goes, key).await?;
    Ok((StatusCode::CREATED, Json(RulesAdded { added })))
}

async fn test(
    State(app): State<App>,
    caller: Caller,
    Body(stone): Body<TryStone>,
) -> Result<Json<Priced>, Fail> {
    let feeds = caller.feeds(&app).await?;
    if !feeds.has(&stone.feed) {
        return Err(Error::unknown_feed(&stone.feed).into());
    }
    // Every rule is tried: what names no feed prices the stones of every project.
    let rules = Rules::new(app.engine().store().rules().await?);
    let diamond = Diamond {
        lab_grown: stone.lab_grown,
        fancy_color: stone.fancy_color,
        ..Diamond::new("try", stone.price, stone.shape, stone.points)
    };
    // It is a question that travels as a change does: nothing was done that belongs on record.
    unchanged();
    Ok(Json(rules.price(&stone.feed, &diamond)))
}

async fn remove(State(app): State<App>, caller: Caller, Id(rule): Id<i64>) -> Result<StatusCode, Fail> {
    let feeds = caller.feeds(&app).await?;
    let store = app.engine().store();
    let seen = store.rules().await?.iter().any(|found| found.rule_id == rule && feeds.have(found));
    if seen && store.remove_rule(rule).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Fail::new(StatusCode::NOT_FOUND, "unknown_rule", format!("there is no rule {rule}"))
        .hint("tidemill rule list"))
}
