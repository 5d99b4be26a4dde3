//! Panel of the pricing rules of a feed, with a tester for a sample stone.

use crate::error_page::{ErrorPage, sentence};
use crate::page_context::PageContext;
use crate::text::safe;
use http::Uri;
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::feed::dollars as money;
use tidemill_core::pricing::{PriceQuote, PricingRule};
use tidemill_wire::Problem;
use tidemill_wire::rules::SampleStone;

/// Maximum number of rules shown.
const ROWS: usize = 50;

/// Sample stone for the rule tester, from the address.
#[derive(Debug, Default)]
pub(super) struct StoneInput {
    price: String,
    carats: String,
    shape: String,
    lab_grown: bool,
}

impl StoneInput {
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let mut input = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "price" => value.trim().clone_into(&mut input.price),
                "carats" => value.trim().clone_into(&mut input.carats),
                "shape" => value.trim().clone_into(&mut input.shape),
                "lab" => input.lab_grown = true,
                _ => {}
            }
        }
        input
    }

    /// The sample stone, if one is given.
    fn stone(&self, feed: &str) -> Option<Result<SampleStone, Problem>> {
        if self.price.is_empty() && self.carats.is_empty() {
            return None;
        }
        let read = |text: &str, what: &str| {
            hundredths(text).ok_or_else(|| {
                Problem::new("bad_number", format!("{what} must be a number with at most two decimals"))
            })
        };
        let stone = read(&self.price, "the price").and_then(|price| {
            let points = read(&self.carats, "the weight")?;
            let shape = if self.shape.is_empty() { "ROUND".to_owned() } else { self.shape.clone() };
            Ok(SampleStone {
                feed: feed.to_owned(),
                price,
                points,
                shape,
                lab_grown: self.lab_grown,
                fancy_color: None,
            })
        });
        Some(stone)
    }
}

/// Parses a number with at most two decimals into hundredths, without floating point.
fn hundredths(text: &str) -> Option<i64> {
    let (dollars, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if dollars.is_empty() || fraction.len() > 2 || !digits(dollars) || !digits(fraction) {
        return None;
    }
    let cents: i64 = format!("{fraction:0<2}").parse().ok()?;
    dollars.parse::<i64>().ok()?.checked_mul(100)?.checked_add(cents)
}

/// Renders the rules and the tester.
pub(super) async fn panel(context: &PageContext, feed: &str, input: StoneInput) -> Result<Markup, ErrorPage> {
    let rules = context.client.rules().await?.items;
    let of_feed = |rule: &&PricingRule| rule.feed.as_deref().is_none_or(|of| of == feed);
    let rules: Vec<&PricingRule> = rules.iter().filter(of_feed).collect();
    let priced = match input.stone(feed) {
        None => None,
        Some(Err(problem)) => Some(Err(problem)),
        Some(Ok(stone)) => match context.client_with_csrf().test_rules(&stone).await {
            Ok(priced) => Some(Ok(priced)),
            Err(Error::Refused { problem, .. }) => Some(Err(*problem)),
            Err(error) => return Err(error.into()),
        },
    };
    let chosen = priced.as_ref().and_then(|priced| priced.as_ref().ok()).and_then(|priced| priced.rule_id);
    Ok(html! {
        section.panel #rules {
            header { h2 { "Pricing rules" } span.dim.small { "the first matching rule prices a stone" } }
            form.filters method="get" action={ "/feeds/" (feed) "#rules" } {
                label.field { "Price, $" input type="text" inputmode="decimal" name="price"
                    value=(input.price) placeholder="1250" required; }
                label.field { "Carats" input type="text" inputmode="decimal" name="carats"
                    value=(input.carats) placeholder="1.25" required; }
                label.field { "Shape" input type="text" name="shape" value=(input.shape) placeholder="ROUND"
                    maxlength="128"; }
                label.tick { input type="checkbox" name="lab" value="yes" checked[input.lab_grown];
                    " lab-grown" }
                button type="submit" { "Test" }
            }
            @match &priced {
                Some(Ok(priced)) => (outcome(priced)),
                Some(Err(problem)) => p.empty.bad role="alert" { (safe(&sentence(&problem.message))) },
                None => {},
            }
            @if rules.is_empty() { p.empty { "No rule matches this feed. Add one: "
                code { "tidemill rule add --markup 1.15" } } }
            @else {
                div.scroll { table {
                    thead { tr { th.num { "Priority" } th { "Stones" } th.num { "Markup" } th.num { "Rule"
                        } } }
                    tbody {
                        @for rule in rules.iter().take(ROWS) {
                            tr.chosen[chosen == Some(rule.rule_id)] data-key=(rule.rule_id) {
                                td.num { (rule.priority) }
                                td { (safe(&describe_conditions(rule)))
                                    @if !rule.active { " " span.dim { "(inactive)" } } }
                                td.num { "×" (ratio(rule.markup)) }
                                td.num { (rule.rule_id) @if chosen == Some(rule.rule_id) { " ←" } }
                            }
                        }
                    }
                } }
                @if rules.len() > ROWS { p.empty.small { "and " (rules.len() - ROWS) " more: "
                    code { "tidemill rule list" } } }
            }
        }
    })
}

fn outcome(priced: &PriceQuote) -> Markup {
    html! {
        p.empty role="status" {
            @match priced.rule_id {
                Some(rule) => { "Rule " b { (rule) } " matches: ×" (ratio(priced.markup)) ", retail price "
                    b { (money(priced.retail_price)) } },
                None => { "No rule matches: retail price " b { (money(priced.retail_price)) } },
            }
            @if let Some(rating) = priced.rating { ", rating " (rating) }
            "."
        }
    }
}

/// Formats ten-thousandths as a factor without trailing zeros.
fn ratio(markup: i32) -> String {
    let text = format!("{}.{:04}", markup / 10_000, markup % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Describes the conditions of a rule.
fn describe_conditions(rule: &PricingRule) -> String {
    let carats = |points: i64| format!("{}.{:02} ct", points / 100, points % 100);
    let mut conditions = Vec::new();
    if let Some(feed) = &rule.feed {
        conditions.push(format!("of {feed}"));
    }
    if let Some(kind) = rule.stone_type {
        conditions.push(kind.to_string());
    }
    if let Some(lab_grown) = rule.lab_grown {
        conditions.push(if lab_grown { "lab-grown" } else { "not lab-grown" }.to_owned());
    }
    if !rule.shapes.is_empty() {
        conditions.push(rule.shapes.join(" or "));
    }
    match (rule.points_min, rule.points_max) {
        (Some(min), Some(max)) => conditions.push(format!("{} to {}", carats(min), carats(max))),
        (Some(min), None) => conditions.push(format!("{} and more", carats(min))),
        (None, Some(max)) => conditions.push(format!("up to {}", carats(max))),
        (None, None) => {}
    }
    match (rule.price_min, rule.price_max) {
        (Some(min), Some(max)) => conditions.push(format!("{} to {}", money(min), money(max))),
        (Some(min), None) => conditions.push(format!("{} and more", money(min))),
        (None, Some(max)) => conditions.push(format!("up to {}", money(max))),
        (None, None) => {}
    }
    if conditions.is_empty() { "all stones".to_owned() } else { conditions.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_parsed_exactly_and_factors_have_no_trailing_zeros() {
        assert_eq!(
            [hundredths("12.3"), hundredths("7"), hundredths("0.07")],
            [Some(1_230), Some(700), Some(7)]
        );
        for bad in ["", ".5", "-1", "1.234", "1e3", "99999999999999999999"] {
            assert_eq!(hundredths(bad), None, "{bad}");
        }
        assert_eq!([ratio(11_500), ratio(10_000), ratio(12_345)], ["1.15", "1", "1.2345"]);
    }
}
