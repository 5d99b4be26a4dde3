//! What was measured, as a table.

use std::io::Write as _;

/// One figure beside its floor and its target.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) floor: String,
    pub(crate) ours: String,
    pub(crate) figure: String,
    pub(crate) target: String,
    pub(crate) met: bool,
    pub(crate) cost: String,
}

/// All lines so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

/// Pairs of rates that were measured in turn.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pairs {
    pub(crate) floors: Vec<f64>,
    pub(crate) ours: Vec<f64>,
}

impl Pairs {
    pub(crate) fn add(&mut self, floor: f64, ours: f64) {
        self.floors.push(floor);
        self.ours.push(ours);
    }

    /// The ratios in percent: median, smallest, largest.
    pub(crate) fn ratios(&self) -> (f64, f64, f64) {
        let mut ratios: Vec<f64> =
            self.floors.iter().zip(&self.ours).map(|(floor, ours)| 100.0 * ours / floor).collect();
        ratios.sort_by(f64::total_cmp);
        (median(&ratios), ratios.first().copied().unwrap_or(0.0), ratios.last().copied().unwrap_or(0.0))
    }

    /// A line that compares the medians.
    pub(crate) fn line(&self, what: impl Into<String>, least_percent: f64, cost: String) -> Line {
        let (middle, least, most) = self.ratios();
        Line {
            what: what.into(),
            floor: format!("{:.0}/s", median(&self.floors)),
            ours: format!("{:.0}/s", median(&self.ours)),
            figure: format!("{middle:.0} % ({least:.0}–{most:.0})"),
            target: format!("≥ {least_percent:.0} %"),
            met: middle >= least_percent,
            cost,
        }
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// A value such that so many percent are below it.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(0.0)
}

impl Report {
    pub(crate) fn add(&mut self, line: Line) {
        say(&format!("  {}: {} (target {})", line.what, line.figure, line.target));
        self.lines.push(line);
    }

    pub(crate) fn print(&self, json: bool) {
        let mut out = std::io::stdout().lock();
        let met = self.lines.iter().filter(|line| line.met).count();
        if json {
            let lines: Vec<_> = self
                .lines
                .iter()
                .map(|line| {
                    serde_json::json!({"what": line.what, "floor": line.floor, "ours": line.ours,
                        "figure": line.figure, "target": line.target, "met": line.met, "cost": line.cost})
                })
                .collect();
            let _ = writeln!(out, "{}", serde_json::json!({"lines": lines, "met": met}));
            return;
        }
        let _ = writeln!(out, "| what | floor | ours | ours of floor (spread) | target | met | cost |");
        let _ = writeln!(out, "|---|---|---|---|---|---|---|");
        for line in &self.lines {
            let Line { what, floor, ours, figure, target, met, cost } = line;
            let met = if *met { "yes" } else { "**no**" };
            let _ = writeln!(out, "| {what} | {floor} | {ours} | {figure} | {target} | {met} | {cost} |");
        }
        let _ = writeln!(
            out,
            "\n{met} of {} targets met; peak memory of this process {}",
            self.lines.len(),
            memory()
        );
    }
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}

/// One line of progress.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
