//! The rules that price a feed's stones, and which of them would price a given one.

use crate::oops::{Oops, sentence};
use crate::sync::money;
use crate::text::says;
use crate::visitor::Visitor;
use http::Uri;
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::pricing::{Priced, PricingRule};
use tidemill_wire::Problem;
use tidemill_wire::rules::TryStone;

/// Rules that are shown.
const ROWS: usize = 50;

/// A stone to try the rules on, as the address says it.
#[derive(Debug, Default)]
pub(super) struct Tried {
    price: String,
    carats: String,
    shape: String,
    lab_grown: bool,
}

impl Tried {
    pub(super) fn of(uri: &Uri) -> Self {
        let mut tried = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "price" => value.trim().clone_into(&mut tried.price),
                "carats" => value.trim().clone_into(&mut tried.carats),
                "shape" => value.trim().clone_into(&mut tried.shape),
                "lab" => tried.lab_grown = true,
                _ => {}
            }
        }
        tried
    }

    /// The stone, where one is given.
    fn stone(&self, feed: &str) -> Option<Result<TryStone, Problem>> {
        if self.price.is_empty() && self.carats.is_empty() {
            return None;
        }
        let read = |text: &str, what: &str| {
            hundredths(text).ok_or_else(|| {
                Problem::new("bad_number", format!("{what} is a number with at most two decimals"))
            })
        };
        let stone = read(&self.price, "the price").and_then(|price| {
            let points = read(&self.carats, "the weight")?;
            let shape = if self.shape.is_empty() { "ROUND".to_owned() } else { self.shape.clone() };
            Ok(TryStone {
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

/// A number with two decimals at the most, in hundredths: money never passes through a float.
fn hundredths(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 2 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let cents: i64 = format!("{fraction:0<2}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(100)?.checked_add(cents)
}

/// The rules, and the tester.
pub(super) async fn panel(visitor: &Visitor, feed: &str, tried: Tried) -> Result<Markup, Oops> {
    let rules = visitor.client.rules().await?.items;
    let of_feed = |rule: &&PricingRule| rule.feed.as_deref().is_none_or(|of| of == feed);
    let rules: Vec<&PricingRule> = rules.iter().filter(of_feed).collect();
    let priced = match tried.stone(feed) {
        None => None,
        Some(Err(problem)) => Some(Err(problem)),
        Some(Ok(stone)) => match visitor.asking().test_rules(&stone).await {
            Ok(priced) => Some(Ok(priced)),
            Err(Error::Refused { problem, .. }) => Some(Err(*problem)),
            Err(error) => return Err(error.into()),
        },
    };
    let decides = priced.as_ref().and_then(|priced| priced.as_ref().ok()).and_then(|priced| priced.rule_id);
    Ok(html! {
        section.panel #rules {
            header { h2 { "Rules" } span.dim.small { "the first that fits prices a stone" } }
            form.filters method="get" action={ "/feeds/" (feed) "#rules" } {
                label.field { "Price, $" input type="text" inputmode="decimal" name="price"
                    value=(tried.price) placeholder="1250" required; }
                label.field { "Carats" input type="text" inputmode="decimal" name="carats"
                    value=(tried.carats) placeholder="1.25" required; }
                label.field { "Shape" input type="text" name="shape" value=(tried.shape) placeholder="ROUND"
                    maxlength="128"; }
                label.tick { input type="checkbox" name="lab" value="yes" checked[tried.lab_grown];
                    " lab-grown" }
                button type="submit" { "Which rule?" }
            }
            @match &priced {
                Some(Ok(priced)) => (outcome(priced)),
                Some(Err(problem)) => p.empty.bad role="alert" { (says(&sentence(&problem.message))) },
                None => {},
            }
            @if rules.is_empty() { p.empty { "No rule prices its stones. Add one: "
                code { "tidemill rule add --markup 1.15" } } }
            @else {
                div.scroll { table {
                    thead { tr { th.num { "Order" } th { "Which stones" } th.num { "Markup" } th.num { "Rule"
                        } } }
                    tbody {
                        @for rule in rules.iter().take(ROWS) {
                            tr.chosen[decides == Some(rule.rule_id)] data-key=(rule.rule_id) {
                                td.num { (rule.priority) }
                                td { (says(&fits(rule))) @if !rule.active { " " span.dim { "(not used)" } } }
                                td.num { "×" (ratio(rule.markup)) }
                                td.num { (rule.rule_id) @if decides == Some(rule.rule_id) { " ←" } }
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

fn outcome(priced: &Priced) -> Markup {
    html! {
        p.empty role="status" {
            @match priced.rule_id {
                Some(rule) => { "Rule " b { (rule) } " prices it: ×" (ratio(priced.markup)) ", sold for "
                    b { (money(priced.retail_price)) } },
                None => { "No rule fits it: it is sold for " b { (money(priced.retail_price)) } },
            }
            @if let Some(rating) = priced.rating { ", rating " (rating) }
            "."
        }
    }
}

/// Ten-thousandths as a factor, without needless zeros.
fn ratio(markup: i32) -> String {
    let text = format!("{}.{:04}", markup / 10_000, markup % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Which stones a rule fits, in words.
fn fits(rule: &PricingRule) -> String {
    let carats = |points: i64| format!("{}.{:02} ct", points / 100, points % 100);
    let mut words = Vec::new();
    if let Some(feed) = &rule.feed {
        words.push(format!("of {feed}"));
    }
    if let Some(kind) = rule.stone_type {
        words.push(kind.to_string());
    }
    if let Some(lab_grown) = rule.lab_grown {
        words.push(if lab_grown { "lab-grown" } else { "not lab-grown" }.to_owned());
    }
    if !rule.shapes.is_empty() {
        words.push(rule.shapes.join(" or "));
    }
    match (rule.points_min, rule.points_max) {
        (Some(min), Some(max)) => words.push(format!("{} to {}", carats(min), carats(max))),
        (Some(min), None) => words.push(format!("{} and more", carats(min))),
        (None, Some(max)) => words.push(format!("up to {}", carats(max))),
        (None, None) => {}
    }
    match (rule.price_min, rule.price_max) {
        (Some(min), Some(max)) => words.push(format!("{} to {}", money(min), money(max))),
        (Some(min), None) => words.push(format!("{} and more", money(min))),
        (None, Some(max)) => words.push(format!("up to {}", money(max))),
        (None, None) => {}
    }
    if words.is_empty() { "all stones".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_without_a_float_and_factors_have_no_needless_zeros() {
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
