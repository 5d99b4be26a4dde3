//! Checks of names before a request, and lists of several pages.

use crate::failure::Failure;
use http::StatusCode;
use std::str::FromStr;
use tidemill_client::Error;
use tidemill_core::ids::is_name;
use tidemill_core::limits::BATCH_MAX;
use tidemill_store::{Refusal, RefusalCode};
use tidemill_wire::{Page, Problem};

/// Reports an invalid name as one that does not exist.
///
/// An invalid name must not reach the path of a request, where it could address another endpoint.
fn require(is_valid: bool, unknown: impl FnOnce() -> tidemill_store::Error) -> Result<(), Failure> {
    if is_valid { Ok(()) } else { Err(unknown().into()) }
}

fn unknown(code: RefusalCode, message: String, hint: Option<&str>) -> tidemill_store::Error {
    tidemill_store::Error::Refused(Refusal { code, message, hint: hint.map(str::to_owned) })
}

pub(crate) fn check_project(name: &str) -> Result<(), Failure> {
    require(is_name(name), || tidemill_store::Error::unknown_project(name, None))
}

pub(crate) fn check_schedule(name: &str) -> Result<(), Failure> {
    let message = || format!("schedule `{name}` does not exist");
    require(is_name(name), || unknown(RefusalCode::UnknownSchedule, message(), None))
}

pub(crate) fn check_feed(name: &str) -> Result<(), Failure> {
    require(is_name(name), || tidemill_store::Error::unknown_feed(name))
}

/// Accepts the id of a sync or of one of its runs.
pub(crate) fn check_sync(id: &str) -> Result<(), Failure> {
    let is_valid =
        (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    require(is_valid, || tidemill_store::Error::unknown_sync(id))
}

pub(crate) fn check_queue(name: &str) -> Result<(), Failure> {
    if is_name(name) {
        return Ok(());
    }
    let problem = Problem::new("unknown_queue", format!("queue `{name}` does not exist"));
    let problem = Box::new(Problem { hint: Some("tidemill queue list".to_owned()), ..problem });
    Err(Error::Refused { status: StatusCode::NOT_FOUND, problem }.into())
}

pub(crate) fn check_hook(name: &str) -> Result<(), Failure> {
    let message = || format!("hook `{name}` does not exist");
    require(is_name(name), || unknown(RefusalCode::UnknownHook, message(), Some("tidemill hook list")))
}

/// Reads up to `limit` items of a list, page by page.
///
/// Reads one page even if `limit` is 0, because the server may refuse the request.
pub(crate) async fn read_pages<T, A: FromStr>(
    limit: usize,
    mut page: impl AsyncFnMut(Option<A>, Option<u16>) -> Result<Page<T>, Error>,
) -> Result<Vec<T>, Failure> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let rows = (limit.saturating_sub(items.len())).clamp(1, BATCH_MAX);
        let Page { items: more, next } = page(after, u16::try_from(rows).ok()).await?;
        items.extend(more);
        let Some(next) = next.filter(|_| items.len() < limit) else { break };
        let position =
            next.parse().map_err(|_| Error::InvalidResponse(format!("`{next}` is not a valid page cursor")));
        after = Some(position?);
    }
    items.truncate(limit);
    Ok(items)
}
