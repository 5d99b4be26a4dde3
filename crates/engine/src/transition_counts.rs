//! Counter of the transitions of runs, by new state and kind.
//!
//! Callers choose kinds freely, so the number of distinct labels is bounded: after the first [`KIND_LABELS_MAX`] kinds
//! of a process, further kinds are counted as `other`. A run without a kind is counted without the label.

use metrics::counter;
use std::collections::HashSet;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use tidemill_core::limits::KIND_LABELS_MAX;
use tidemill_core::run::{ChangeOutcome, FinalStatus};

/// Label of the kinds that have no label of their own.
const OTHER: &str = "other";

static LABELS: LazyLock<RwLock<KindLabels>> = LazyLock::new(RwLock::default);

/// The kinds that have a label of their own.
#[derive(Debug, Default)]
struct KindLabels(HashSet<Arc<str>>);

impl KindLabels {
    /// Returns the label of a kind. The first kinds get labels of their own.
    fn add(&mut self, kind: &str) -> Arc<str> {
        if let Some(known) = self.0.get(kind) {
            return Arc::clone(known);
        }
        if self.0.len() >= KIND_LABELS_MAX {
            return OTHER.into();
        }
        let label: Arc<str> = kind.into();
        self.0.insert(Arc::clone(&label));
        label
    }
}

fn label(kind: &str) -> Arc<str> {
    // Almost always known: no write lock.
    let known = LABELS.read().unwrap_or_else(PoisonError::into_inner).0.get(kind).cloned();
    known.unwrap_or_else(|| LABELS.write().unwrap_or_else(PoisonError::into_inner).add(kind))
}

/// Counts runs of one kind that this process moved to a state.
pub(crate) fn entered(state: &'static str, kind: &str, runs: u64) {
    if kind.is_empty() {
        counter!("tidemill_transitions_total", "to" => state).increment(runs);
    } else {
        counter!("tidemill_transitions_total", "to" => state, "kind" => label(kind)).increment(runs);
    }
}

/// Counts each of these runs by its kind.
pub(crate) fn entered_each<'a>(state: &'static str, kinds: impl Iterator<Item = &'a str>) {
    let mut without_kind = 0;
    for kind in kinds {
        if kind.is_empty() {
            without_kind += 1;
        } else {
            entered(state, kind, 1);
        }
    }
    if without_kind > 0 {
        entered(state, "", without_kind);
    }
}

/// Counts the end of a run, if this report applied it. [`crate::Engine::finish`] does not know the kinds of runs, so
/// its caller counts.
pub fn count_end(status: FinalStatus, kind: &str, outcome: ChangeOutcome) {
    match outcome {
        ChangeOutcome::Applied => entered(status.as_str(), kind, 1),
        ChangeOutcome::Duplicate | ChangeOutcome::Stale => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_beyond_the_limit_share_one_label() {
        let mut labels = KindLabels::default();
        for number in 0..KIND_LABELS_MAX {
            let kind = format!("kind-{number}");
            assert_eq!(*labels.add(&kind), kind);
        }
        for late in ["late", "later"] {
            assert_eq!(&*labels.add(late), OTHER);
        }
        assert_eq!(&*labels.add("kind-0"), "kind-0");
        assert_eq!(labels.0.len(), KIND_LABELS_MAX);
    }
}
