//! Trace spans of a run. The scheduler, workers, consolidators and servers all write to one trace.
//!
//! The trace id is derived from the run id, so processes need not pass it on. Syncs pass it on all the same, in their
//! messages. Only a trace collector subscribes to the target of these spans; without one they cost nothing.

/// Target of spans that have a trace id in the field `trace.id`.
pub const TARGET: &str = "tidemill_trace";

/// A span of a run.
macro_rules! of_run {
    ($name:literal, $run:expr) => {
        tracing::trace_span!(
            target: $crate::trace::TARGET, $name, trace.id = %$run.trace_id(), run.id = %$run
        )
    };
}
pub(crate) use of_run;

/// A span of a sync, with an explicit trace id.
macro_rules! of_sync {
    ($name:literal, $trace:expr, $sync:expr $(, $field:ident = $value:expr)*) => {
        tracing::trace_span!(
            target: $crate::trace::TARGET, $name, trace.id = %$trace, sync.id = %$sync $(, $field = %$value)*
        )
    };
}
pub(crate) use of_sync;
