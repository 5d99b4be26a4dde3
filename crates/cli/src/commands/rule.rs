//! Rules: add, list, remove, import, apply, test.

use crate::args_sync::{RuleAdd, RuleCommand, RuleTest};
use crate::fail::Failure;
use crate::out::{Cell, Out};
use std::path::Path;
use std::process::ExitCode;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::{PricingRule, Rules};
use tidemill_engine::sync::{Replaced, Syncs};
use tidemill_store::Error;

pub(super) async fn command(syncs: Syncs, command: RuleCommand, out: Out) -> Result<ExitCode, Failure> {
    let store = syncs.engine().store();
    match command {
        RuleCommand::Add(add) => {
            let mut rule = rule_of(*add);
            rule.rule_id = syncs
                .add_rules(vec![rule.clone()], Replaced::Nothing, None)
                .await?
                .first()
                .copied()
                .unwrap_or(0);
            if out.is_json() {
                out.json(&rule);
            } else {
                out.line(format!("rule {} is in place", rule.rule_id));
                out.say("hint: tidemill rule apply FEED prices the stones that are there");
            }
        }
        RuleCommand::List => list(&syncs, out).await?,
        RuleCommand::Remove { id } => {
            if !store.remove_rule(id).await? {
                return Err(Failure::refused(format!("there is no rule {id}")).hint("tidemill rule list"));
            }
            if out.is_json() {
                out.json(&serde_json::json!({"rule_id": id, "removed": true}));
            } else {
                out.line(format!("rule {id} is removed"));
            }
        }
        RuleCommand::Import { file, replace } => {
            let goes = if replace { Replaced::All } else { Replaced::Nothing };
            let added = syncs.add_rules(read_rules(&file)?, goes, None).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"added": added}));
            } else {
                out.line(format!("{} rules are in place", added.len()));
            }
        }
        RuleCommand::Apply { feed } => {
            let live = out.is_live();
            let done = syncs
                .apply_rules(&feed, |so_far| {
                    if live {
                        out.say(format!("{} stones priced again", so_far.stones));
                    }
                })
                .await?;
            if out.is_json() {
                out.json(&done);
            } else {
                out.line(format!(
                    "{} stones of {feed} were priced again by version {} of the rules; {} were rejected",
                    done.stones, done.rules_version, done.rejected
                ));
            }
        }
        RuleCommand::Test(test) => try_stone(&syncs, *test, out).await?,
    }
    Ok(ExitCode::SUCCESS)
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

async fn list(syncs: &Syncs, out: Out) -> Result<(), Failure> {
    let rules = syncs.engine().store().rules().await?;
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

async fn try_stone(syncs: &Syncs, test: RuleTest, out: Out) -> Result<(), Failure> {
    let rules = syncs.engine().store().rules().await?;
    let stone = Diamond {
        lab_grown: test.lab_grown,
        fancy_color: test.fancy_color,
        ..Diamond::new("try", test.price, test.shape, test.carats)
    };
    let priced = Rules::new(rules.into_iter().filter(|rule| rule.active).collect()).price(&test.feed, &stone);
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
