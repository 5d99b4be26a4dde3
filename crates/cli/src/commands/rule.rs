//! `tidemill rule`: pricing rules.

pub(crate) mod args;

use crate::failure::Failure;
use crate::out::{Cell, Out};
use crate::requests;
use args::{RuleAddArgs, RuleCommand, RuleTestArgs};
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::REST_KIND;
use tidemill_core::pricing::{PricingRule, RepriceSummary};
use tidemill_store::Error;
use tidemill_wire::rules::{ImportRules, NewRule, Reprice, SampleStone};
use uuid::Uuid;

pub(super) async fn command(client: Client, command: RuleCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        RuleCommand::Add(add) => {
            let rule = pricing_rule(*add);
            rule.check().map_err(Error::from)?;
            let rule = client.add_rule(&NewRule::from(rule), Some(new_key())).await?;
            if out.is_json() {
                out.print_json(&rule);
            } else {
                out.print(format!("rule {} added", rule.rule_id));
                out.inform("hint: tidemill rule apply FEED");
            }
        }
        RuleCommand::List => list(&client, out).await?,
        RuleCommand::Remove { id } => {
            client.remove_rule(id).await?;
            if out.is_json() {
                out.print_json(&serde_json::json!({"rule_id": id, "removed": true}));
            } else {
                out.print(format!("rule {id} removed"));
            }
        }
        RuleCommand::Import { file, replace } => {
            let rules = read_rules(&file)?.into_iter().map(NewRule::from).collect();
            let added = client.import_rules(&ImportRules { rules, replace }, Some(new_key())).await?.added;
            if out.is_json() {
                out.print_json(&serde_json::json!({"added": added}));
            } else {
                out.print(format!("{} rules added", added.len()));
            }
        }
        RuleCommand::Apply { feed, batch } => {
            requests::check_feed(&feed)?;
            if client.feed(&feed).await?.feed.feed.kind == REST_KIND {
                let message = format!("feed `{feed}` is of kind `{REST_KIND}`, whose records have no prices");
                return Err(Failure::refused(message).with_hint(format!("tidemill feed rebuild {feed}")));
            }
            let done = apply(&client, &feed, batch, out).await?;
            if out.is_json() {
                out.print_json(&done);
            } else {
                out.print(format!(
                    "{} stones of {feed} repriced with version {} of the rules; {} rejected",
                    done.stones, done.rules_version, done.rejected
                ));
            }
        }
        RuleCommand::Test(test) => test_rules(&client, *test, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reprices stones in batches. A second call skips the stones that already have the current version of the rules.
async fn apply(client: &Client, feed: &str, batch: Option<u16>, out: Out) -> Result<RepriceSummary, Failure> {
    let mut total = RepriceSummary::default();
    let mut request = Reprice { after: None, limit: batch };
    loop {
        let batch = client.reprice(feed, &request).await?;
        total.rules_version = batch.rules_version;
        total.stones += batch.stones;
        total.rejected += batch.rejected;
        let Some(next) = batch.next else { return Ok(total) };
        out.inform(format!("{} stones of {feed} repriced so far", total.stones));
        request.after = Some(next);
    }
}

/// Creates an idempotency key, so that the request can be retried when the response is lost.
fn new_key() -> String {
    format!("cli-{}", Uuid::new_v4())
}

fn pricing_rule(add: RuleAddArgs) -> PricingRule {
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
        .map_err(|error| Failure::refused(format!("`{}` is not a list of rules: {error}", file.display())))?;
    for rule in &rules {
        rule.check().map_err(Error::from)?;
    }
    Ok(rules)
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let rules = client.rules().await?.items;
    if out.is_json() {
        out.print_json(&rules);
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = rules
        .iter()
        .map(|rule| {
            vec![
                rule.rule_id.to_string().into(),
                rule.priority.to_string().into(),
                describe_criteria(rule).into(),
                format_decimal(i64::from(rule.markup), 4).into(),
                rule.rating.map_or_else(|| "–".to_owned(), |rating| rating.to_string()).into(),
                if rule.active { "yes" } else { "no" }.into(),
            ]
        })
        .collect();
    out.print_table(&["RULE", "PRIORITY", "STONES", "MARKUP", "RATING", "ACTIVE"], &rows);
    Ok(())
}

fn describe_criteria(rule: &PricingRule) -> String {
    let mut words = Vec::new();
    words.extend(rule.feed.clone());
    words.extend(rule.stone_type.map(|kind| kind.to_string()));
    words.extend(rule.lab_grown.map(|grown| if grown { "lab grown" } else { "mined" }.to_owned()));
    if !rule.shapes.is_empty() {
        words.push(rule.shapes.join("|"));
    }
    let range = |name: &str, low: Option<i64>, high: Option<i64>| match (low, high) {
        (None, None) => None,
        (Some(low), None) => Some(format!("{name} ≥ {}", format_decimal(low, 2))),
        (None, Some(high)) => Some(format!("{name} ≤ {}", format_decimal(high, 2))),
        (Some(low), Some(high)) => {
            Some(format!("{name} {}–{}", format_decimal(low, 2), format_decimal(high, 2)))
        }
    };
    words.extend(range("carats", rule.points_min, rule.points_max));
    words.extend(range("dollars", rule.price_min, rule.price_max));
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

/// Formats an integer as a number with `places` decimals.
fn format_decimal(value: i64, places: u32) -> String {
    let unit = 10_i64.pow(places);
    format!("{}.{:0width$}", value / unit, (value % unit).abs(), width = places as usize)
}

async fn test_rules(client: &Client, test: RuleTestArgs, out: Out) -> Result<(), Failure> {
    let stone = SampleStone {
        feed: test.feed,
        price: test.price,
        points: test.carats,
        shape: test.shape,
        lab_grown: test.lab_grown,
        fancy_color: test.fancy_color,
    };
    let priced = client.test_rules(&stone).await?;
    if out.is_json() {
        out.print_json(&priced);
        return Ok(());
    }
    match priced.rule_id {
        Some(rule) => out.print(format!(
            "rule {rule} applies: {} dollars (× {}), rating {}",
            format_decimal(priced.retail_price, 2),
            format_decimal(i64::from(priced.markup), 4),
            priced.rating.map_or_else(|| "–".to_owned(), |rating| rating.to_string())
        )),
        None => out.print(format!(
            "no rule matches: the price stays {} dollars",
            format_decimal(priced.retail_price, 2)
        )),
    }
    Ok(())
}
