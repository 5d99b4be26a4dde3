//! Step chart of a value over time.

use super::{at, number};
use crate::time::full;
use maud::{Markup, html};
use tidemill_core::Timestamp;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 110.0;
const EDGE: f64 = 8.0;

/// A change of the value.
pub(crate) struct Step {
    pub(crate) at: Timestamp,
    pub(crate) value: Timestamp,
}

pub(crate) struct Steps {
    pub(crate) title: String,
    /// Steps, oldest first.
    pub(crate) steps: Vec<Step>,
}

fn share(moment: Timestamp, from: Timestamp, to: Timestamp) -> f64 {
    number((moment - from).num_milliseconds()) / number((to - from).num_milliseconds().max(1))
}

impl Steps {
    /// Draws the chart; nothing with fewer than two steps.
    pub(crate) fn draw(&self) -> Markup {
        let ends = |field: fn(&Step) -> Timestamp| {
            let values = self.steps.iter().map(field);
            values.clone().min().zip(values.max())
        };
        let (Some((from, to)), Some((low, high))) = (ends(|step| step.at), ends(|step| step.value)) else {
            return html! {};
        };
        if self.steps.len() < 2 {
            return html! {};
        }
        let point = |step: &Step| {
            (
                EDGE + (WIDTH - 2.0 * EDGE) * share(step.at, from, to),
                HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * share(step.value, low, high),
            )
        };
        let corners = self.steps.iter().enumerate().map(|(number, step)| {
            let (x, y) = point(step);
            if number == 0 { format!("M{} {}", at(x), at(y)) } else { format!("H{} V{}", at(x), at(y)) }
        });
        let path = corners.collect::<Vec<_>>().join(" ");
        let descriptions: Vec<String> =
            self.steps.iter().map(|step| format!("{} at {}", full(step.value), full(step.at))).collect();
        html! {
            svg role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                title { (self.title) }
                desc { (descriptions.join(", ")) }
                path.line d=(path) {}
                @for step in &self.steps {
                    @let (x, y) = point(step);
                    circle.dot cx=(at(x)) cy=(at(y)) r="3" { title { (full(step.value)) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeDelta, TimeZone as _, Utc};

    #[test]
    fn steps_are_drawn_from_oldest_to_newest() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let step = |minutes| Step {
            at: now + TimeDelta::minutes(minutes),
            value: now + TimeDelta::minutes(minutes),
        };
        let steps = Steps { title: "Moves".to_owned(), steps: vec![step(0), step(30), step(60)] };
        let drawn = steps.draw().into_string();
        assert!(drawn.contains("d=\"M8.0 102.0 H240.0 V55.0 H472.0 V8.0\""), "{drawn}");
        assert_eq!(Steps { title: String::new(), steps: vec![step(0)] }.draw().into_string(), "");
    }
}
