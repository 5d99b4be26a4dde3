//! Turns the engine's spans of runs into spans of OpenTelemetry, each in the trace that its run has.
//!
//! The usual bridge makes up an id for every trace. Here the id is the run's, so that processes which never meet
//! write to the same trace.

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

/// Turns spans of runs into spans of OpenTelemetry.
pub(super) struct Spans {
    out: Arc<BatchSpanProcessor>,
    role: &'static str,
}

/// A span that has not ended.
struct Begun {
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    at: SystemTime,
    fields: Vec<KeyValue>,
}

impl Spans {
    pub(super) fn new(out: Arc<BatchSpanProcessor>, role: &'static str) -> Self {
        Self { out, role }
    }
}

/// The fields of a span.
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

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let (Some(trace), Some(span)) = (fields.trace, context.span(id)) else { return };
        let above = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Begun>().filter(|begun| begun.trace == trace).map(|begun| begun.id)
        });
        fields.others.push(KeyValue::new("tidemill.role", self.role));
        let begun = Begun {
            trace,
            id: new_id(),
            parent: above.unwrap_or(SpanId::INVALID),
            at: host_now().into(),
            fields: fields.others,
        };
        span.extensions_mut().insert(begun);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(begun) = span.extensions_mut().remove::<Begun>() else { return };
        self.out.on_end(SpanData {
            span_context: SpanContext::new(
                begun.trace,
                begun.id,
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: begun.parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: span.name().into(),
            start_time: begun.at,
            end_time: host_now().into(),
            attributes: begun.fields,
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

/// A random id, never the one that means nothing.
fn new_id() -> SpanId {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let mut half = [0; 8];
    half.copy_from_slice(&bytes[8..]);
    SpanId::from_bytes(half)
}
