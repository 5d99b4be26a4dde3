//! The endpoints for tests and benchmarks: `/admin/*`, for peers on the same machine.

use crate::desk::Desk;
use crate::filter::Query;
use crate::life::{Change, Churn};
use crate::lock;
use crate::out::Out;
use async_graphql::Value;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidemill_core::Timestamp;
use tidemill_core::digest::sha256_hex;

/// How many stones are written at a time.
const CHUNK: u32 = 128;

/// What is true of a stone: a line of `/admin/truth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// The stone's id.
    pub id: String,
    /// SHA-256 of the item as JSON, with the fields of [`STANDARD_SELECTION`](crate::STANDARD_SELECTION).
    pub sha256: String,
    /// The price in cents.
    pub price: u32,
    /// Whether it is for sale.
    pub available: bool,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Whether it was grown in a laboratory.
    pub labgrown: bool,
}

/// The body of `POST /admin/clock`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetClock {
    /// The time at which the clock stands; it follows the machine's where this is null.
    now: Option<Timestamp>,
}

/// An answer of an admin endpoint.
pub(crate) enum AdminAnswer {
    /// A JSON body.
    Json(StatusCode, Vec<u8>),
    /// The truth, line by line.
    Truth(TruthBody),
}

/// Answers a request to an admin endpoint.
pub(crate) fn answer(desk: &Arc<Desk>, method: &Method, path: &str, body: &[u8]) -> AdminAnswer {
    let known = matches!(path, "behaviour" | "change" | "churn" | "clock" | "stats" | "truth");
    let result = match (method, path) {
        (&Method::GET, "behaviour") => json(&*lock(&desk.behaviour)),
        (&Method::POST, "behaviour") => parse(body).and_then(|patch: serde_json::Value| {
            desk.behave(|behaviour| {
                *behaviour = behaviour.merged(&patch)?;
                Ok(())
            })?;
            json(&*lock(&desk.behaviour))
        }),
        (&Method::POST, "change") => parse(body).and_then(|order: Change| json(&desk.change(&order)?)),
        (&Method::POST, "churn") => parse(body).and_then(|churn: Churn| {
            desk.set_churn(churn.clone());
            json(&churn)
        }),
        (&Method::POST, "clock") => parse(body).and_then(|clock: SetClock| {
            desk.clock.set(clock.now);
            json(&serde_json::json!({"now": desk.clock.now()}))
        }),
        (&Method::GET, "stats") => json(&desk.counters.read()),
        (&Method::GET, "truth") => return AdminAnswer::Truth(TruthBody::new(desk, None)),
        (&Method::POST, "truth") => {
            match parse(body).and_then(|query: Value| Query::read(&query, desk.config.seed)) {
                Ok(query) => return AdminAnswer::Truth(TruthBody::new(desk, Some(query))),
                Err(fault) => Err(fault),
            }
        }
        _ if known => return failure(StatusCode::METHOD_NOT_ALLOWED, "this endpoint has another method"),
        _ => return failure(StatusCode::NOT_FOUND, "there is no such endpoint"),
    };
    match result {
        Ok(body) => AdminAnswer::Json(StatusCode::OK, body),
        Err(fault) => failure(StatusCode::BAD_REQUEST, &fault),
    }
}

/// An error, as JSON.
pub(crate) fn failure(status: StatusCode, message: &str) -> AdminAnswer {
    AdminAnswer::Json(status, serde_json::json!({"error": message}).to_string().into_bytes())
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|fault| fault.to_string())
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|fault| fault.to_string())
}

/// Writes the truth while it is being read: there is never more of it in memory than a few lines.
pub(crate) struct TruthBody {
    desk: Arc<Desk>,
    query: Option<Query>,
    next: u32,
}

impl TruthBody {
    fn new(desk: &Arc<Desk>, query: Option<Query>) -> Self {
        Self { desk: Arc::clone(desk), query, next: 0 }
    }

    /// The next few lines; nothing after the last stone.
    fn chunk(&mut self) -> Option<Vec<Truth>> {
        let world = lock(&self.desk.world);
        let end = self.next.saturating_add(CHUNK).min(world.len());
        if self.next >= end {
            return None;
        }
        let numbers = self.next..end;
        self.next = end;
        let stones: Vec<_> = numbers.filter_map(|number| world.stone(number)).collect();
        drop(world);
        let wanted = |stone: &&crate::stone::Stone| {
            self.query.as_ref().is_none_or(|query| {
                let named = query.stones.as_ref().is_none_or(|all| all.binary_search(&stone.number).is_ok());
                named && query.filter.matches(&stone.state)
            })
        };
        Some(stones.iter().filter(wanted).map(|stone| truth(&self.desk, stone)).collect())
    }
}

/// Everything that is true at the moment.
pub(crate) fn all_truth(desk: &Arc<Desk>) -> Vec<Truth> {
    let mut body = TruthBody::new(desk, None);
    std::iter::from_fn(|| body.chunk()).flatten().collect()
}

fn truth(desk: &Desk, stone: &crate::stone::Stone) -> Truth {
    let mut out = Out::with_capacity(2_048);
    let mut stone = *stone;
    {
        let behaviour = lock(&desk.behaviour);
        (stone.is_spaced, stone.padding) = (behaviour.spaced_ids, behaviour.padding_bytes);
    }
    desk.standard.write(&stone, &mut out);
    Truth {
        id: stone.shown_id(),
        sha256: sha256_hex(&out.0),
        price: stone.state.price,
        available: stone.state.presence == crate::stone::Presence::Available,
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
        // A chunk of which a filter left nothing must not look like the end.
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
