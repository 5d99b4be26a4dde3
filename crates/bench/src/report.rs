//! Results of measurements as a table.

use std::io::Write as _;

/// A figure with its floor and its target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) what: String,
    /// Formatted floor, or empty.
    pub(crate) floor: String,
    /// Formatted result of Tidemill.
    pub(crate) ours: String,
    /// Formatted figure that is compared with the target.
    pub(crate) figure: String,
    /// Median, minimum and maximum, in percent of the floor, milliseconds or counts.
    pub(crate) values: [f64; 3],
    /// Formatted target, or empty.
    pub(crate) target: String,
    /// Whether the target is met, if there is one.
    pub(crate) met: Option<bool>,
    /// Cost per run on PostgreSQL.
    pub(crate) cost: Option<Cost>,
    /// Cost of the floor's run.
    pub(crate) floor_cost: Option<Cost>,
}

/// Cost of a run on the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    /// Bytes of write-ahead log.
    pub(crate) wal_bytes: f64,
    pub(crate) commits: f64,
    /// Processor time of all server processes, if it was measured.
    pub(crate) cpu_micros: Option<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

/// Pairs of rates that were measured alternately.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pairs {
    pub(crate) floors: Vec<f64>,
    pub(crate) ours: Vec<f64>,
}

impl Pairs {
    pub(crate) fn add(&mut self, floor: f64, ours: f64) {
        log(&format!("  floor {floor:.0}/s, Tidemill {ours:.0}/s, {:.0} %", 100.0 * ours / floor));
        self.floors.push(floor);
        self.ours.push(ours);
    }

    /// Median, minimum and maximum of the ratios, in percent.
    pub(crate) fn ratios(&self) -> [f64; 3] {
        let ratios: Vec<f64> =
            self.floors.iter().zip(&self.ours).map(|(floor, ours)| 100.0 * ours / floor).collect();
        [median(&ratios), percentile(&ratios, 0), percentile(&ratios, 100)]
    }

    /// Builds a line that compares the medians.
    pub(crate) fn line(
        &self,
        what: impl Into<String>,
        min_percent: impl Into<Option<f64>>,
        cost: Option<Cost>,
    ) -> Line {
        let min_percent = min_percent.into();
        let values = self.ratios();
        let [middle, min, max] = values;
        Line {
            what: what.into(),
            floor: format!("{:.0}/s", median(&self.floors)),
            ours: format!("{:.0}/s", median(&self.ours)),
            figure: format!("{middle:.0} % ({min:.0}–{max:.0})"),
            values,
            target: min_percent.map_or_else(String::new, |percent| format!("≥ {percent:.0} %")),
            met: min_percent.map(|percent| middle >= percent),
            cost,
            floor_cost: None,
        }
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0.0)
}

impl Report {
    pub(crate) fn add(&mut self, line: Line) {
        let target =
            if line.target.is_empty() { String::new() } else { format!(" (target {})", line.target) };
        log(&format!("  {}: {}{target}", line.what, line.figure));
        self.lines.push(line);
    }

    pub(crate) fn print(&self, json: bool) {
        let mut out = std::io::stdout().lock();
        let met = self.lines.iter().filter(|line| line.met == Some(true)).count();
        let targets = self.lines.iter().filter(|line| line.met.is_some()).count();
        if json {
            let lines: Vec<_> = self.lines.iter().map(Line::json).collect();
            let all = serde_json::json!({"lines": lines, "targets": targets, "met": met, "peak_memory": peak_memory()});
            let _ = writeln!(out, "{all}");
            return;
        }
        let _ = writeln!(
            out,
            "| measurement | floor | Tidemill | median (spread) | target | met \
             | WAL per run (floor) | commits per run (floor) | server CPU per run (floor) |"
        );
        let _ = writeln!(out, "|---|---|---|---|---|---|---|---|---|");
        for line in &self.lines {
            let _ = writeln!(out, "{}", line.row());
        }
        let _ =
            writeln!(out, "\n{met} of {targets} targets met; peak memory of this process {}", peak_memory());
    }
}

impl Cost {
    fn json(self) -> serde_json::Value {
        serde_json::json!({"wal_bytes": self.wal_bytes, "commits": self.commits, "cpu_micros": self.cpu_micros})
    }
}

impl Line {
    /// Compares the median rate of Tidemill with an absolute target instead of the floor.
    pub(crate) fn with_min_rate(self, pairs: &Pairs, rate: f64) -> Self {
        Self { target: format!("≥ {rate:.0}/s"), met: Some(median(&pairs.ours) >= rate), ..self }
    }

    fn row(&self) -> String {
        let display = |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "–",
        };
        let cost = |format: fn(Cost) -> Option<String>| match (self.cost, self.floor_cost) {
            (Some(ours), floor) => {
                let floor = floor.and_then(format).map_or_else(String::new, |floor| format!(" ({floor})"));
                format(ours).map_or_else(|| "–".to_owned(), |ours| format!("{ours}{floor}"))
            }
            (None, _) => "–".to_owned(),
        };
        let costs = [
            cost(|cost| Some(format!("{:.0} B", cost.wal_bytes))),
            cost(|cost| Some(format!("{:.2}", cost.commits))),
            cost(|cost| cost.cpu_micros.map(|micros| format!("{micros:.0} µs"))),
        ];
        let cells =
            [&self.what, &self.floor, &self.ours, &self.figure, &self.target].map(|text| display(text));
        format!("| {} | {met} | {} |", cells.join(" | "), costs.join(" | "))
    }

    fn json(&self) -> serde_json::Value {
        let [middle, min, max] = self.values;
        serde_json::json!({"what": self.what, "floor": self.floor, "ours": self.ours, "figure": self.figure,
            "median": middle, "min": min, "max": max, "target": self.target, "met": self.met,
            "cost_per_run": self.cost.map(Cost::json), "floor_cost_per_run": self.floor_cost.map(Cost::json)})
    }
}

/// Peak memory of this process, which is the client of all measurements.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "unknown".to_owned(), |peak| peak.trim().to_owned())
}

/// Prints a line of progress.
pub(crate) fn log(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn absolute_target_is_compared_with_the_median_rate() {
        let mut pairs = Pairs::default();
        for ours in [39_000.0, 41_000.0, 60_000.0] {
            pairs.add(100_000.0, ours);
        }
        let line = |rate| pairs.line("queue", None, None).with_min_rate(&pairs, rate);
        assert_eq!((line(40_000.0).target.as_str(), line(40_000.0).met), ("≥ 40000/s", Some(true)));
        assert_eq!(line(42_000.0).met, Some(false));
        assert_eq!(line(40_000.0).figure, "41 % (39–60)");
    }
}
