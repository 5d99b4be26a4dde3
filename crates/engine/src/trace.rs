//! Spans of a run, for whoever collects traces: scheduler, worker, consolidator and server write to one trace.
//!
//! The id of the trace follows from the run's id, so that nothing has to be handed on between processes; a sync hands
//! it on all the same, in its messages. Nobody but a collector of traces listens to the target of these spans, and
//! where there is none they cost nothing.

/// The target of spans that have the id of a run's trace in the field `trace.id`.
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

/// A span of a sync, which knows the id of its trace.
macro_rules! of_sync {
    ($name:literal, $trace:expr, $sync:expr $(, $field:ident = $value:expr)*) => {
        tracing::trace_span!(
            target: $crate::trace::TARGET, $name, trace.id = %$trace, sync.id = %$sync $(, $field = %$value)*
        )
    };
}
pub(crate) use of_sync;
