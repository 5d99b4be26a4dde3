//! The `/admin/*` endpoints for tests and benchmarks, available to peers on the same machine.

use crate::changes::{Change, Churn};
use crate::filter::Query;
use crate::json_writer::JsonWriter;
use crate::lock;
use crate::state::SupplierState;
use async_graphql_value::ConstValue;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidemill_core::Timestamp;
use tidemill_core::digest::sha256_hex;

/// Stones per chunk of the truth.
const CHUNK: u32 = 128;

/// True state of a stone: one line of `/admin/truth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub id: String,
    /// SHA-256 of the item as JSON, with the fields of [`STANDARD_SELECTION`](crate::STANDARD_SELECTION).
    pub sha256: String,
    pub price: u32,
    pub available: bool,
    pub updated_at: Timestamp,
    pub labgrown: bool,
}

/// Request body of `POST /admin/clock`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetClock {
    /// Fixed time of the clock; null resumes the clock of the machine.
    now: Option<Timestamp>,
}

/// Response of an admin endpoint.
pub(crate) enum AdminResponse {
    Json(StatusCode, Vec<u8>),
    Truth(TruthBody),
}

/// Handles a request to an admin endpoint.
pub(crate) fn respond(state: &Arc<SupplierState>, method: &Method, path: &str, body: &[u8]) -> AdminResponse {
    let known = matches!(path, "behaviour" | "change" | "churn" | "clock" | "stats" | "truth");
    let result = match (method, path) {
        (&Method::GET, "behaviour") => json(&*lock(&state.behaviour)),
        (&Method::POST, "behaviour") => parse(body).and_then(|patch: serde_json::Value| {
            state.behave(|behaviour| {
                *behaviour = behaviour.merged(&patch)?;
                Ok(())
            })?;
            json(&*lock(&state.behaviour))
        }),
        (&Method::POST, "change") => parse(body).and_then(|change: Change| json(&state.change(&change)?)),
        (&Method::POST, "churn") => parse(body).and_then(|churn: Churn| {
            state.set_churn(churn.clone());
            json(&churn)
        }),
        (&Method::POST, "clock") => parse(body).and_then(|clock: SetClock| {
            state.clock.set(clock.now);
            json(&serde_json::json!({"now": state.clock.now()}))
        }),
        (&Method::GET, "stats") => json(&state.counters.read()),
        (&Method::GET, "truth") => return AdminResponse::Truth(TruthBody::new(state, None)),
        (&Method::POST, "truth") => {
            match parse(body).and_then(|query: ConstValue| Query::read(&query, state.config.seed)) {
                Ok(query) => return AdminResponse::Truth(TruthBody::new(state, Some(query))),
                Err(error) => Err(error),
            }
        }
        _ if known => return failure(StatusCode::METHOD_NOT_ALLOWED, "method not allowed for this endpoint"),
        _ => return failure(StatusCode::NOT_FOUND, "unknown endpoint"),
    };
    match result {
        Ok(body) => AdminResponse::Json(StatusCode::OK, body),
        Err(error) => failure(StatusCode::BAD_REQUEST, &error),
    }
}

/// Creates an error response with a JSON body.
pub(crate) fn failure(status: StatusCode, message: &str) -> AdminResponse {
    AdminResponse::Json(status, serde_json::json!({"error": message}).to_string().into_bytes())
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|error| error.to_string())
}

/// Streams the truth in chunks, so that only a few lines are in memory.
pub(crate) struct TruthBody {
    state: Arc<SupplierState>,
    query: Option<Query>,
    next: u32,
}

impl TruthBody {
    fn new(state: &Arc<SupplierState>, query: Option<Query>) -> Self {
        Self { state: Arc::clone(state), query, next: 0 }
    }

    /// Returns the next lines; `None` after the last stone.
    fn chunk(&mut self) -> Option<Vec<Truth>> {
        let catalogue = lock(&self.state.catalogue);
        let end = self.next.saturating_add(CHUNK).min(catalogue.len());
        if self.next >= end {
            return None;
        }
        let numbers = self.next..end;
        self.next = end;
        let stones: Vec<_> = numbers.filter_map(|number| catalogue.stone(number)).collect();
        drop(catalogue);
        let wanted = |stone: &&crate::stone::Stone| {
            self.query.as_ref().is_none_or(|query| {
                let named = query.stones.as_ref().is_none_or(|all| all.binary_search(&stone.number).is_ok());
                named && query.filter.matches(&stone.state)
            })
        };
        Some(stones.iter().filter(wanted).map(|stone| truth(&self.state, stone)).collect())
    }
}

/// Returns the truth of all stones.
pub(crate) fn all_truth(state: &Arc<SupplierState>) -> Vec<Truth> {
    let mut body = TruthBody::new(state, None);
    std::iter::from_fn(|| body.chunk()).flatten().collect()
}

fn truth(state: &SupplierState, stone: &crate::stone::Stone) -> Truth {
    let mut out = JsonWriter::with_capacity(2_048);
    let mut stone = *stone;
    {
        let behaviour = lock(&state.behaviour);
        (stone.is_spaced, stone.padding) = (behaviour.spaced_ids, behaviour.padding_bytes);
    }
    state.standard.write(&stone, &mut out);
    Truth {
        id: stone.shown_id(),
        sha256: sha256_hex(&out.0),
        price: stone.state.price,
        available: stone.state.availability == crate::stone::Availability::Available,
        updated_at: crate::clock::from_micros(stone.state.updated),
        labgrown: stone.state.traits.labgrown(),
    }
}

impl Body for TruthBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut text = Vec::new();
        // An empty frame would end the body, so chunks without a match are skipped.
        while text.is_empty() {
            let Some(lines) = self.chunk() else { return Poll::Ready(None) };
            for line in lines {
                if let Ok(line) = json(&line) {
                    text.extend(line);
                    text.push(b'\n');
                }
            }
        }
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}
