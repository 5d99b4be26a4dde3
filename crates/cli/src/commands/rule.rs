//! Rules: add, list, remove, import, apply, test.

use crate::args_sync::{RuleAdd, RuleCommand, RuleTest};
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out};
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::pricing::{PricingRule, Repriced};
use tidemill_store::Error;
use tidemill_wire::rules::{ImportRules, NewRule, Reprice, TryStone};
use uuid::Uuid;

pub(super) async fn command(client: Client, command: RuleCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        RuleCommand::Add(add) => {
            let rule = rule_of(*add);
            rule.check().map_err(Error::from)?;
            let rule = client.add_rule(&NewRule::from(rule), Some(key())).await?;
            if out.is_json() {
                out.json(&rule);
            } else {
                out.line(format!("rule {} is in place", rule.rule_id));
                out.say("hint: tidemill rule apply FEED prices the stones that are there");
            }
        }
        RuleCommand::List => list(&client, out).await?,
        RuleCommand::Remove { id } => {
            client.remove_rule(id).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"rule_id": id, "removed": true}));
            } else {
                out.line(format!("rule {id} is removed"));
            }
        }
        RuleCommand::Import { file, replace } => {
            let rules = read_rules(&file)?.into_iter().map(NewRule::from).collect();
            let added = client.import_rules(&ImportRules { rules, replace }, Some(key())).await?.added;
            if out.is_json() {
                out.json(&serde_json::json!({"added": added}));
            } else {
                out.line(format!("{} rules are in place", added.len()));
            }
        }
        RuleCommand::Apply { feed, batch } => {
            asking::feed(&feed)?;
            let done = apply(&client, &feed, batch, out).await?;
            if out.is_json() {
                out.json(&done);
            } else {
                out.line(format!(
                    "{} stones of {feed} were priced again by version {} of the rules; {} were rejected",
                    done.stones, done.rules_version, done.rejected
                ));
            }
        }
        RuleCommand::Test(test) => try_stone(&client, *test, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prices stones until none is left, some with each request. Begun again after a break, it passes over what is done.
async fn apply(client: &Client, feed: &str, batch: Option<u16>, out: Out) -> Result<Repriced, Failure> {
    let mut all = Repriced::default();
    let mut asked = Reprice { after: None, limit: batch };
    loop {
        let some = client.reprice(feed, &asked).await?;
        all.rules_version = some.rules_version;
        all.stones += some.stones;
        all.rejected += some.rejected;
        let Some(next) = some.next else { return Ok(all) };
        out.say(format!("{} stones of {feed} are priced again so far", all.stones));
        asked.after = Some(next);
    }
}

/// A key of this one request, so that it can be asked again when the answer is lost.
fn key() -> String {
    format!("cli-{}", Uuid::new_v4())
}

fn rule_of(add: RuleAdd) -> PricingRule {
    PricingRule {
        rule_id: 0,
        priority: add.priority,
        feed: add.feed,
        stone_type: add.stone_type,
        lab_grown: add.lab_grown,
        shapes: add.shapes,
        points_min: add.carat_min,
        points_max: add.carat_max,
        price_min: add.price_min,
        price_max: add.price_max,
        markup: add.markup,
        rating: add.rating,
        active: true,
    }
}

fn read_rules(file: &Path) -> Result<Vec<PricingRule>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::refused(format!("could not read `{}`: {error}", file.display())))?;
    let rules: Vec<PricingRule> = serde_json::from_str(&text)
        .map_err(|error| Failure::refused(format!("`{}` holds no rules: {error}", file.display())))?;
    for rule in &rules {
        rule.check().map_err(Error::from)?;
    }
    Ok(rules)
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let rules = client.rules().await?.items;
    if out.is_json() {
        out.json(&rules);
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = rules
        .iter()
        .map(|rule| {
            vec![
                rule.rule_id.to_string().into(),
                rule.priority.to_string().into(),
                criteria(rule).into(),
                decimal(i64::from(rule.markup), 4).into(),
                rule.rating.map_or_else(|| "–".to_owned(), |rating| rating.to_string()).into(),
                if rule.active { "yes" } else { "no" }.into(),
            ]
        })
        .collect();
    out.table(&["RULE", "PRIORITY", "STONES", "MARKUP", "RATING", "ACTIVE"], &rows);
    Ok(())
}

fn criteria(rule: &PricingRule) -> String {
    let mut words = Vec::new();
    words.extend(rule.feed.clone());
    words.extend(rule.stone_type.map(|kind| kind.to_string()));
    words.extend(rule.lab_grown.map(|grown| if grown { "lab grown" } else { "mined" }.to_owned()));
    if !rule.shapes.is_empty() {
        words.push(rule.shapes.join("|"));
    }
    let range = |name: &str, low: Option<i64>, high: Option<i64>| match (low, high) {
        (None, None) => None,
        (Some(low), None) => Some(format!("{name} ≥ {}", decimal(low, 2))),
        (None, Some(high)) => Some(format!("{name} ≤ {}", decimal(high, 2))),
        (Some(low), Some(high)) => Some(format!("{name} {}–{}", decimal(low, 2), decimal(high, 2))),
    };
    words.extend(range("carats", rule.points_min, rule.points_max));
    words.extend(range("dollars", rule.price_min, rule.price_max));
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

/// A whole number as one with so many decimals.
fn decimal(value: i64, places: u32) -> String {
    let unit = 10_i64.pow(places);
    format!("{}.{:0width$}", value / unit, (value % unit).abs(), width = places as usize)
}

async fn try_stone(client: &Client, test: RuleTest, out: Out) -> Result<(), Failure> {
    let stone = TryStone {
        feed: test.feed,
        price: test.price,
        points: test.carats,
        shape: test.shape,
        lab_grown: test.lab_grown,
        fancy_color: test.fancy_color,
    };
    let priced = client.test_rules(&stone).await?;
    if out.is_json() {
        out.json(&priced);
        return Ok(());
    }
    match priced.rule_id {
        Some(rule) => out.line(format!(
            "rule {rule} prices it at {} dollars (× {}), rating {}",
            decimal(priced.retail_price, 2),
            decimal(i64::from(priced.markup), 4),
            priced.rating.map_or_else(|| "–".to_owned(), |rating| rating.to_string())
        )),
        None => out.line(format!("no rule fits: it stays at {} dollars", decimal(priced.retail_price, 2))),
    }
    Ok(())
}
