//! The `/admin/*` endpoints for tests and benchmarks, available to peers on the same machine.

use crate::changes::{Change, Churn};
use crate::filter::Query;
use crate::json_writer::JsonWriter;
use crate::lock;
use crate::rest;
use crate::state::SupplierState;
use crate::stone::{Availability, Stone};
use async_graphql_value::ConstValue;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    let known = ["behaviour", "change", "churn", "clock", "stats", "truth", "rest-truth"].contains(&path);
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
        (&Method::GET, "truth") => {
            return AdminResponse::Truth(TruthBody::new(state, TruthLines::Stones(None)));
        }
        (&Method::GET, "rest-truth") => {
            return AdminResponse::Truth(TruthBody::new(state, TruthLines::Items));
        }
        (&Method::POST, "truth") => {
            match parse(body).and_then(|query: ConstValue| Query::read(&query, state.config.seed)) {
                Ok(query) => {
                    return AdminResponse::Truth(TruthBody::new(state, TruthLines::Stones(Some(query))));
                }
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

/// The lines of a response of `/admin/truth` or `/admin/rest-truth`.
enum TruthLines {
    /// One [`Truth`] for each stone, or for those of a query.
    Stones(Option<Query>),
    /// The active items of the REST API.
    Items,
}

/// Streams the truth in chunks, so that only a few lines are in memory.
pub(crate) struct TruthBody {
    state: Arc<SupplierState>,
    lines: TruthLines,
    next: u32,
}

impl TruthBody {
    fn new(state: &Arc<SupplierState>, lines: TruthLines) -> Self {
        Self { state: Arc::clone(state), lines, next: 0 }
    }

    /// Returns the text of the next lines; `None` after the last stone.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let stones = self.stones()?;
        let mut out = JsonWriter::default();
        for stone in &stones {
            match &self.lines {
                TruthLines::Stones(_) => out.0.extend(json(&truth(&self.state, stone)).unwrap_or_default()),
                TruthLines::Items => self.state.rest_item.write(stone, &mut out),
            }
            out.raw("\n");
        }
        Some(out.0)
    }

    /// Returns the next stones that the truth contains; `None` after the last one.
    fn stones(&mut self) -> Option<Vec<Stone>> {
        let catalogue = lock(&self.state.catalogue);
        let end = self.next.saturating_add(CHUNK).min(catalogue.len());
        if self.next >= end {
            return None;
        }
        let numbers = self.next..end;
        self.next = end;
        let stones: Vec<_> = numbers.filter_map(|number| catalogue.stone(number)).collect();
        drop(catalogue);
        let is_wanted = |stone: &Stone| match &self.lines {
            TruthLines::Stones(None) => true,
            TruthLines::Stones(Some(query)) => {
                let named = query.stones.as_ref().is_none_or(|all| all.binary_search(&stone.number).is_ok());
                named && query.filter.matches(&stone.state)
            }
            TruthLines::Items => stone.state.availability == Availability::Available,
        };
        let (is_spaced, padding) = {
            let behaviour = lock(&self.state.behaviour);
            (behaviour.spaced_ids, behaviour.padding_bytes)
        };
        let shown = |stone| Stone { is_spaced, padding, ..stone };
        Some(stones.into_iter().filter(is_wanted).map(shown).collect())
    }
}

/// Returns the truth of all stones.
pub(crate) fn all_truth(state: &Arc<SupplierState>) -> Vec<Truth> {
    let mut body = TruthBody::new(state, TruthLines::Stones(None));
    std::iter::from_fn(|| body.stones()).flatten().map(|stone| truth(state, &stone)).collect()
}

/// Returns the active items of the REST API: their JSON by id.
pub(crate) fn rest_truth(state: &Arc<SupplierState>) -> BTreeMap<String, String> {
    let mut body = TruthBody::new(state, TruthLines::Items);
    let item = |stone: Stone| {
        let mut out = JsonWriter::with_capacity(1_024);
        state.rest_item.write(&stone, &mut out);
        (rest::shown_id(&stone), String::from_utf8_lossy(&out.0).into_owned())
    };
    std::iter::from_fn(|| body.stones()).flatten().map(item).collect()
}

fn truth(state: &SupplierState, stone: &Stone) -> Truth {
    let mut out = JsonWriter::with_capacity(2_048);
    state.standard.write(stone, &mut out);
    Truth {
        id: stone.shown_id(),
        sha256: sha256_hex(&out.0),
        price: stone.state.price,
        available: stone.state.availability == Availability::Available,
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
            text = lines;
        }
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}
