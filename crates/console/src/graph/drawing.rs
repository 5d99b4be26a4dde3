//! A graph as a picture: a box for each job and an arrow for each need, or, where that would be too much to look
//! at, a bar for each layer.

use super::layers::{Layout, Size, Spot, lay_out, layers};
use super::look::{Look, of_jobs, words};
use crate::picture::{at, number};
use crate::text::{cut, visible};
use crate::time::took;
use crate::words::{count, counted};
use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;
use tidemill_core::Timestamp;
use tidemill_core::graph::record::JobRecord;

/// Jobs and arrows that are drawn one by one.
pub(super) const JOBS_MAX: usize = 200;
const ARROWS_MAX: usize = 800;
/// Up to so many jobs each box has two lines.
const ROOMY: usize = 60;
/// Characters of a name, and of what stands below it.
const NAME_CHARS: usize = 18;
const BELOW_CHARS: usize = 24;
/// Bars of a picture by layers: neighbours share one where there are more layers.
const BARS_MAX: usize = 32;
/// The width of bars, of the names on their left and of the numbers on their right, and the height of a row.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 110.0;
const NUMBERS: f64 = 290.0;
const ROW: f64 = 24.0;

/// The picture of a graph whose jobs are known. `needs` has the places that each place needs.
pub(super) fn draw(jobs: &[JobRecord], needs: &[Vec<usize>], now: Timestamp) -> Markup {
    let arrows: usize = needs.iter().map(Vec::len).sum();
    if jobs.len() > JOBS_MAX || arrows > ARROWS_MAX {
        return by_layer(jobs, needs);
    }
    let roomy = jobs.len() <= ROOMY;
    let size = if roomy {
        Size { width: 164.0, height: 40.0, gap: 12.0 }
    } else {
        Size { width: 146.0, height: 24.0, gap: 6.0 }
    };
    let layout = lay_out(needs, size);
    html! {
        svg.graph role="group" width=(at(layout.width)) height=(at(layout.height))
            viewBox={ "0 0 " (at(layout.width)) " " (at(layout.height)) } {
            title { "The graph: " (counted(whole(jobs.len()), "job", "jobs")) }
            desc { (in_words(jobs, needs)) }
            path.arrows d=(arrows_path(&layout)) {}
            @for (job, spot) in jobs.iter().zip(&layout.spots) { (node(job, *spot, size, roomy, now)) }
        }
    }
}

fn node(job: &JobRecord, spot: Spot, size: Size, roomy: bool, now: Timestamp) -> Markup {
    let look = Look::of(job);
    let code = if look == Look::Reused { "reused".to_owned() } else { words(job.code) };
    let took = took(job.started_at, job.ended_at, now);
    let below = match &took {
        Some(took) if look != Look::Waiting => format!("{code}, {took}"),
        Some(_) | None => code.clone(),
    };
    let y = spot.y + if roomy { 17.0 } else { 16.0 };
    html! {
        a class={ "node n-" (look.word()) } href={ "/jobs/" (job.job_id) } data-key=(job.job_id) {
            title { (visible(&job.name)) ": " (code) }
            rect x=(at(spot.x)) y=(at(spot.y)) width=(size.width) height=(size.height) rx="5" {}
            text.sign x=(at(spot.x + 9.0)) y=(at(y)) { (look.sign()) }
            text.name x=(at(spot.x + 24.0)) y=(at(y)) { (short(&job.name, NAME_CHARS)) }
            @if roomy { text.below x=(at(spot.x + 24.0)) y=(at(y + 15.0)) { (short(&below, BELOW_CHARS)) } }
        }
    }
}

/// A text that fits its box.
fn short(text: &str, most: usize) -> String {
    let shown = visible(text);
    match cut(&shown, most) {
        (_, false) => shown,
        (_, true) => format!("{}…", cut(&shown, most - 1).0),
    }
}

/// All arrows as one path: curves between layers, straight through them.
fn arrows_path(layout: &Layout) -> PreEscaped<String> {
    let mut path = String::new();
    for way in &layout.ways {
        for (place, (x, y)) in way.iter().enumerate() {
            let Some((from_x, from_y)) = place.checked_sub(1).and_then(|before| way.get(before)) else {
                let _ = write!(path, "M{x:.0} {y:.0}");
                continue;
            };
            if place % 2 == 0 {
                let _ = write!(path, "L{x:.0} {y:.0}");
            } else if layout.down {
                let middle = f64::midpoint(*from_y, *y);
                let _ = write!(path, "C{from_x:.0} {middle:.0} {x:.0} {middle:.0} {x:.0} {y:.0}");
            } else {
                let middle = f64::midpoint(*from_x, *x);
                let _ = write!(path, "C{middle:.0} {from_y:.0} {middle:.0} {y:.0} {x:.0} {y:.0}");
            }
        }
    }
    // Letters, digits and blanks that are made above: there is nothing to escape.
    PreEscaped(path)
}

/// The same in words.
fn in_words(jobs: &[JobRecord], needs: &[Vec<usize>]) -> String {
    let lines = jobs.iter().zip(needs).map(|(job, needs)| {
        let names: Vec<String> =
            needs.iter().filter_map(|need| jobs.get(*need)).map(|need| visible(&need.name)).collect();
        let after = if names.is_empty() { String::new() } else { format!(" after {}", names.join(", ")) };
        format!("{} is {}{after}", visible(&job.name), words(job.code))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// A row of the picture by layers: its name, and how many jobs of it look how.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) counts: Vec<(Look, i64)>,
}

fn by_layer(jobs: &[JobRecord], needs: &[Vec<usize>]) -> Markup {
    let layer_of = layers(needs);
    let count = layer_of.iter().max().map_or(0, |last| last + 1);
    let share = count.div_ceil(BARS_MAX).max(1);
    let bars = (0..count.div_ceil(share)).map(|bar| {
        let (first, last) = (bar * share, (bar * share + share).min(count) - 1);
        let own = jobs.iter().zip(&layer_of).filter(|(_, layer)| (first..=last).contains(*layer));
        let name = if first == last {
            format!("layer {}", first + 1)
        } else {
            format!("layers {}–{}", first + 1, last + 1)
        };
        Bar { name, counts: of_jobs(own.map(|(job, _)| job)) }
    });
    draw_bars("Jobs by layer, each after everything that it needs", &bars.collect::<Vec<_>>())
}

/// Bars that are as long as they have jobs, each divided by how its jobs look.
pub(super) fn draw_bars(title: &str, bars: &[Bar]) -> Markup {
    let total = |bar: &Bar| bar.counts.iter().map(|(_, count)| *count).sum::<i64>();
    let most = bars.iter().map(total).max().unwrap_or(0).max(1);
    let scale = |jobs: i64| (WIDTH - NAMES - NUMBERS) * number(jobs) / number(most);
    let line = |bar: &Bar| {
        let parts = bar.counts.iter().filter(|(_, count)| *count > 0);
        parts.map(|(look, jobs)| format!("{} {}", count(*jobs), look.word())).collect::<Vec<_>>().join(", ")
    };
    let said: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.name, line(bar))).collect();
    let height = ROW * number(whole(bars.len()));
    html! {
        svg role="img" viewBox={ "0 0 " (WIDTH) " " (at(height)) } {
            title { (title) }
            desc { (said.join("; ")) }
            @for (place, bar) in bars.iter().enumerate() {
                @let top = ROW * number(whole(place));
                text.strong x="0" y=(at(top + 16.0)) { (bar.name) }
                @let shown: Vec<(Look, i64)> = bar.counts.iter().copied().filter(|(_, jobs)| *jobs > 0).collect();
                @for (part, (look, jobs)) in shown.iter().enumerate() {
                    @let before: i64 = shown.iter().take(part).map(|(_, jobs)| *jobs).sum();
                    rect class={ "f-" (look.word()) } x=(at(NAMES + scale(before))) y=(at(top + 5.0))
                        width=(at((scale(*jobs)).max(1.5))) height="14" {
                        title { (count(*jobs)) " " (look.word()) } }
                }
                text x=(at(NAMES + scale(total(bar)) + 8.0)) y=(at(top + 16.0)) { (line(bar)) }
            }
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "drawing_tests.rs"]
mod tests;
