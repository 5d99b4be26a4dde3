//! Recorder of this process's metrics, with output in the Prometheus text format.

use super::names::{self, Kind};
use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Upper bounds of the histogram buckets, in seconds.
const BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Maximum number of label sets per metric. A label with more values is a bug and must not exhaust memory.
const SERIES_MAX: usize = 1_000;

static INSTALLED: OnceLock<Recorder> = OnceLock::new();

/// Installs the recorder of this process. Before that, recording is almost free.
pub fn install() {
    let recorder = INSTALLED.get_or_init(Recorder::default);
    // Fails only if the recorder is already installed.
    let _ = ::metrics::set_global_recorder(recorder.clone());
}

/// The installed recorder of this process.
pub(super) fn installed() -> Option<&'static Recorder> {
    INSTALLED.get()
}

/// Recorder of this process's metrics. Cheap to clone.
#[derive(Clone, Default)]
pub struct Recorder {
    series: Arc<RwLock<HashMap<Key, Series>>>,
    counts: Arc<RwLock<HashMap<String, usize>>>,
    dropped: Arc<Number>,
}

#[derive(Clone)]
enum Series {
    Number(Arc<Number>),
    Histogram(Arc<HistogramData>),
}

/// Counter value, or the bits of a gauge's float.
#[derive(Default)]
struct Number(AtomicU64);

impl CounterFn for Number {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

/// Updates a float that is stored as bits.
fn change(bits: &AtomicU64, by: impl Fn(f64) -> f64) {
    let _ = bits
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(by(f64::from_bits(old)).to_bits()));
}

impl GaugeFn for Number {
    fn increment(&self, value: f64) {
        change(&self.0, |old| old + value);
    }

    fn decrement(&self, value: f64) {
        change(&self.0, |old| old - value);
    }

    fn set(&self, value: f64) {
        change(&self.0, |_| value);
    }
}

#[derive(Default)]
struct HistogramData {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    sum: AtomicU64,
}

impl HistogramFn for HistogramData {
    fn record(&self, value: f64) {
        if let Some(bucket) = BUCKETS.iter().position(|end| value <= *end) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        change(&self.sum, |old| old + value);
    }
}

impl Recorder {
    fn series(&self, key: &Key, new: fn() -> Series) -> Option<Series> {
        let found = self.series.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if found.is_some() {
            return found;
        }
        let mut counts = self.counts.write().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.name().to_owned()).or_default();
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = series.get(key) {
            return Some(found.clone());
        }
        if *count >= SERIES_MAX {
            CounterFn::increment(&*self.dropped, 1);
            return None;
        }
        *count += 1;
        Some(series.entry(key.clone()).or_insert_with(new).clone())
    }

    fn number(&self, key: &Key) -> Option<Arc<Number>> {
        match self.series(key, || Series::Number(Arc::default()))? {
            Series::Number(number) => Some(number),
            Series::Histogram(_) => None,
        }
    }

    /// Returns all recorded values.
    pub(super) fn families(&self) -> Families {
        let mut families = Families::default();
        for (key, series) in &*self.series.read().unwrap_or_else(PoisonError::into_inner) {
            let labels: Vec<(&str, &str)> = key.labels().map(|label| (label.key(), label.value())).collect();
            let kind = names::find(key.name()).map(|metric| metric.kind);
            match (series, kind) {
                (Series::Number(number), Some(Kind::Counter)) => {
                    families.line(key.name(), "", &labels, &number.0.load(Ordering::Relaxed).to_string());
                }
                (Series::Number(number), Some(Kind::Gauge)) => {
                    families.gauge(key.name(), &labels, f64::from_bits(number.0.load(Ordering::Relaxed)));
                }
                (Series::Histogram(data), Some(Kind::Histogram)) => {
                    families.histogram(key.name(), &labels, data);
                }
                _ => {}
            }
        }
        let dropped = self.dropped.0.load(Ordering::Relaxed).to_string();
        families.line("tidemill_metrics_dropped_total", "", &[], &dropped);
        families
    }
}

impl ::metrics::Recorder for Recorder {
    // The help texts are in the table of names.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.number(key).map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.number(key).map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.series(key, || Series::Histogram(Arc::default())) {
            Some(Series::Histogram(data)) => Histogram::from_arc(data),
            Some(Series::Number(_)) | None => Histogram::noop(),
        }
    }
}

/// Output lines by metric.
#[derive(Default)]
pub(super) struct Families(BTreeMap<String, Vec<String>>);

impl Families {
    pub(super) fn gauge(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.line(name, "", labels, &value.to_string());
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], data: &HistogramData) {
        // Reading the count first keeps the buckets from exceeding it by more than concurrent updates.
        let count = data.count.load(Ordering::Relaxed);
        let mut cumulative = 0;
        for (end, bucket) in BUCKETS.iter().zip(&data.buckets) {
            cumulative = (cumulative + bucket.load(Ordering::Relaxed)).min(count);
            let end = end.to_string();
            let labels = [labels, &[("le", end.as_str())]].concat();
            self.line(name, "_bucket", &labels, &cumulative.to_string());
        }
        self.line(name, "_bucket", &[labels, &[("le", "+Inf")]].concat(), &count.to_string());
        let sum = f64::from_bits(data.sum.load(Ordering::Relaxed));
        self.line(name, "_sum", labels, &sum.to_string());
        self.line(name, "_count", labels, &count.to_string());
    }

    fn line(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: &str) {
        let mut line = format!("{name}{suffix}");
        for (position, (label, text)) in labels.iter().enumerate() {
            let open = if position == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(line, "{open}{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            line.push('}');
        }
        let _ = write!(line, " {value}");
        self.0.entry(name.to_owned()).or_default().push(line);
    }

    /// Renders all metrics in table order.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for metric in names::ALL {
            let Some(lines) = self.0.get(metric.name) else { continue };
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(text, "# HELP {} {}\n# TYPE {} {kind}", metric.name, metric.help, metric.name);
            for line in lines {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::metrics::{counter, gauge, histogram, with_local_recorder};

    #[test]
    fn recorded_values_are_rendered_in_the_text_format() {
        let recorder = Recorder::default();
        with_local_recorder(&recorder, || {
            counter!("tidemill_claims_total", "outcome" => "given").increment(2);
            gauge!("tidemill_http_connections").increment(3);
            gauge!("tidemill_http_connections").decrement(1);
            histogram!("tidemill_page_seconds", "feed" => "a\"b").record(0.004);
            histogram!("tidemill_page_seconds", "feed" => "a\"b").record(100.0);
            counter!("tidemill_unknown_total").increment(1);
        });
        let text = recorder.families().text();
        for line in [
            "# TYPE tidemill_claims_total counter",
            "tidemill_claims_total{outcome=\"given\"} 2",
            "tidemill_http_connections 2",
            "tidemill_page_seconds_bucket{feed=\"a\\\"b\",le=\"0.0025\"} 0",
            "tidemill_page_seconds_bucket{feed=\"a\\\"b\",le=\"0.005\"} 1",
            "tidemill_page_seconds_bucket{feed=\"a\\\"b\",le=\"+Inf\"} 2",
            "tidemill_page_seconds_sum{feed=\"a\\\"b\"} 100.004",
            "tidemill_page_seconds_count{feed=\"a\\\"b\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
        }
        assert!(!text.contains("tidemill_unknown"), "{text}");
    }

    #[test]
    fn label_with_too_many_values_is_bounded() {
        let recorder = Recorder::default();
        with_local_recorder(&recorder, || {
            for value in 0..SERIES_MAX + 7 {
                counter!("tidemill_claims_total", "outcome" => value.to_string()).increment(1);
            }
        });
        let text = recorder.families().text();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("tidemill_claims_total{")).count(),
            SERIES_MAX
        );
        assert!(text.contains("tidemill_metrics_dropped_total 7"), "{text}");
    }
}
