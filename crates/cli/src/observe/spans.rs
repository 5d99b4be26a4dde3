//! Converts the engine's spans of runs into OpenTelemetry spans in the trace of the run.
//!
//! The usual bridge generates a new id for every trace. Here the trace id is derived from the run, so that
//! independent processes write to the same trace.

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tidemill_engine::clock::host_now;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Layer that exports the spans of runs.
pub(super) struct SpanLayer {
    out: Arc<BatchSpanProcessor>,
    role: &'static str,
}

/// A span that has not ended.
struct OpenSpan {
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    at: SystemTime,
    fields: Vec<KeyValue>,
}

impl SpanLayer {
    pub(super) fn new(out: Arc<BatchSpanProcessor>, role: &'static str) -> Self {
        Self { out, role }
    }
}

#[derive(Default)]
struct Fields {
    trace: Option<TraceId>,
    others: Vec<KeyValue>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "trace.id" {
            self.trace = TraceId::from_hex(&text).ok().filter(|trace| *trace != TraceId::INVALID);
        } else {
            self.others.push(KeyValue::new(field.name(), text));
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let (Some(trace), Some(span)) = (fields.trace, context.span(id)) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<OpenSpan>().filter(|open| open.trace == trace).map(|open| open.id)
        });
        fields.others.push(KeyValue::new("tidemill.role", self.role));
        let open = OpenSpan {
            trace,
            id: new_id(),
            parent: parent.unwrap_or(SpanId::INVALID),
            at: host_now().into(),
            fields: fields.others,
        };
        span.extensions_mut().insert(open);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        self.out.on_end(SpanData {
            span_context: SpanContext::new(
                open.trace,
                open.id,
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: open.parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: span.name().into(),
            start_time: open.at,
            end_time: host_now().into(),
            attributes: open.fields,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("tidemill")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        });
    }
}

/// Creates a random id, which is never zero.
fn new_id() -> SpanId {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let mut half = [0; 8];
    half.copy_from_slice(&bytes[8..]);
    SpanId::from_bytes(half)
}
