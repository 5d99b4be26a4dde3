//! Drawing of a graph: a box per job and an arrow per dependency or, for large graphs, a bar per layer.

use super::job_status::{JobStatus, code_text, count_jobs};
use super::layers::{Layout, Size, Spot, lay_out, layers};
use crate::chart::{at, number};
use crate::text::{cut, visible};
use crate::time::took;
use crate::widgets::{count, pluralize};
use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;
use tidemill_core::Timestamp;
use tidemill_core::graph::record::JobRecord;

/// Maximum numbers of jobs and arrows that are drawn individually.
pub(super) const JOBS_MAX: usize = 200;
const ARROWS_MAX: usize = 800;
/// Maximum number of jobs for boxes with two lines.
const TWO_LINE_JOBS_MAX: usize = 60;
/// Maximum lengths of a name and of the text below it.
const NAME_CHARS: usize = 18;
const BELOW_CHARS: usize = 24;
/// Maximum number of bars. With more layers, adjacent layers share a bar.
const BARS_MAX: usize = 32;
/// Total width of the bars, of the names to the left and the numbers to the right, and the row height.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 110.0;
const NUMBERS: f64 = 290.0;
const ROW: f64 = 24.0;

/// Draws a graph. `needs` contains the indexes of the jobs that each job depends on.
pub(super) fn draw(jobs: &[JobRecord], needs: &[Vec<usize>], now: Timestamp) -> Markup {
    let arrows: usize = needs.iter().map(Vec::len).sum();
    if jobs.len() > JOBS_MAX || arrows > ARROWS_MAX {
        return draw_layers(jobs, needs);
    }
    let two_lines = jobs.len() <= TWO_LINE_JOBS_MAX;
    let size = if two_lines {
        Size { width: 164.0, height: 40.0, gap: 12.0 }
    } else {
        Size { width: 146.0, height: 24.0, gap: 6.0 }
    };
    let layout = lay_out(needs, size);
    html! {
        svg.graph role="group" width=(at(layout.width)) height=(at(layout.height))
            viewBox={ "0 0 " (at(layout.width)) " " (at(layout.height)) } {
            title { "Graph with " (pluralize(to_i64(jobs.len()), "job", "jobs")) }
            desc { (text_alternative(jobs, needs)) }
            path.arrows d=(arrows_path(&layout)) {}
            @for (job, spot) in jobs.iter().zip(&layout.spots) { (node(job, *spot, size, two_lines, now)) }
        }
    }
}

fn node(job: &JobRecord, spot: Spot, size: Size, two_lines: bool, now: Timestamp) -> Markup {
    let status = JobStatus::from_job(job);
    let code = if status == JobStatus::Reused { "reused".to_owned() } else { code_text(job.code) };
    let took = took(job.started_at, job.ended_at, now);
    let below = match &took {
        Some(took) if status != JobStatus::Waiting => format!("{code}, {took}"),
        Some(_) | None => code.clone(),
    };
    let y = spot.y + if two_lines { 17.0 } else { 16.0 };
    html! {
        a class={ "node n-" (status.label()) } href={ "/jobs/" (job.job_id) } data-key=(job.job_id) {
            title { (visible(&job.name)) ": " (code) }
            rect x=(at(spot.x)) y=(at(spot.y)) width=(size.width) height=(size.height) rx="5" {}
            text.sign x=(at(spot.x + 9.0)) y=(at(y)) { (status.symbol()) }
            text.name x=(at(spot.x + 24.0)) y=(at(y)) { (short(&job.name, NAME_CHARS)) }
            @if two_lines { text.below x=(at(spot.x + 24.0)) y=(at(y + 15.0)) { (short(&below, BELOW_CHARS)) } }
        }
    }
}

/// Truncates a text to fit its box.
fn short(text: &str, most: usize) -> String {
    let shown = visible(text);
    match cut(&shown, most) {
        (_, false) => shown,
        (_, true) => format!("{}…", cut(&shown, most - 1).0),
    }
}

/// All arrows as one path: curves between layers, straight lines through layers.
fn arrows_path(layout: &Layout) -> PreEscaped<String> {
    let mut path = String::new();
    for points in &layout.paths {
        for (index, (x, y)) in points.iter().enumerate() {
            let Some((from_x, from_y)) = index.checked_sub(1).and_then(|before| points.get(before)) else {
                let _ = write!(path, "M{x:.0} {y:.0}");
                continue;
            };
            if index % 2 == 0 {
                let _ = write!(path, "L{x:.0} {y:.0}");
            } else if layout.top_down {
                let middle = f64::midpoint(*from_y, *y);
                let _ = write!(path, "C{from_x:.0} {middle:.0} {x:.0} {middle:.0} {x:.0} {y:.0}");
            } else {
                let middle = f64::midpoint(*from_x, *x);
                let _ = write!(path, "C{middle:.0} {from_y:.0} {middle:.0} {y:.0} {x:.0} {y:.0}");
            }
        }
    }
    // The path only contains letters, digits and blanks generated above.
    PreEscaped(path)
}

/// Text alternative of the drawing.
fn text_alternative(jobs: &[JobRecord], needs: &[Vec<usize>]) -> String {
    let lines = jobs.iter().zip(needs).map(|(job, needs)| {
        let names: Vec<String> =
            needs.iter().filter_map(|need| jobs.get(*need)).map(|need| visible(&need.name)).collect();
        let after = if names.is_empty() { String::new() } else { format!(" after {}", names.join(", ")) };
        format!("{} is {}{after}", visible(&job.name), code_text(job.code))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// A bar of the drawing by layers: its name and its job counts.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) counts: Vec<(JobStatus, i64)>,
}

fn draw_layers(jobs: &[JobRecord], needs: &[Vec<usize>]) -> Markup {
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
        Bar { name, counts: count_jobs(own.map(|(job, _)| job)) }
    });
    draw_bars("Jobs by dependency layer", &bars.collect::<Vec<_>>())
}

/// Draws bars in proportion to their jobs, divided by job state.
pub(super) fn draw_bars(title: &str, bars: &[Bar]) -> Markup {
    let total = |bar: &Bar| bar.counts.iter().map(|(_, count)| *count).sum::<i64>();
    let most = bars.iter().map(total).max().unwrap_or(0).max(1);
    let scale = |jobs: i64| (WIDTH - NAMES - NUMBERS) * number(jobs) / number(most);
    let line = |bar: &Bar| {
        let parts = bar.counts.iter().filter(|(_, count)| *count > 0);
        parts
            .map(|(status, jobs)| format!("{} {}", count(*jobs), status.label()))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let descriptions: Vec<String> = bars.iter().map(|bar| format!("{}: {}", bar.name, line(bar))).collect();
    let height = ROW * number(to_i64(bars.len()));
    html! {
        svg role="img" viewBox={ "0 0 " (WIDTH) " " (at(height)) } {
            title { (title) }
            desc { (descriptions.join("; ")) }
            @for (index, bar) in bars.iter().enumerate() {
                @let top = ROW * number(to_i64(index));
                text.strong x="0" y=(at(top + 16.0)) { (bar.name) }
                @let shown: Vec<(JobStatus, i64)> = bar.counts.iter().copied().filter(|(_, jobs)| *jobs > 0).collect();
                @for (part, (status, jobs)) in shown.iter().enumerate() {
                    @let before: i64 = shown.iter().take(part).map(|(_, jobs)| *jobs).sum();
                    rect class={ "f-" (status.label()) } x=(at(NAMES + scale(before))) y=(at(top + 5.0))
                        width=(at((scale(*jobs)).max(1.5))) height="14" {
                        title { (count(*jobs)) " " (status.label()) } }
                }
                text x=(at(NAMES + scale(total(bar)) + 8.0)) y=(at(top + 16.0)) { (line(bar)) }
            }
        }
    }
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "drawing_tests.rs"]
mod tests;
