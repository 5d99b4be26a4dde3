//! What commands do before and around a question: names that can be one, and lists of more than one page.

use crate::fail::Failure;
use http::StatusCode;
use std::str::FromStr;
use tidemill_client::Error;
use tidemill_core::ids::is_name;
use tidemill_core::limits::BATCH_MAX;
use tidemill_store::{Refusal, RefusalCode};
use tidemill_wire::{Page, Problem};

/// Refuses a name that nothing can have, in the words of one that nothing has: within a path it would mean
/// something else.
fn possible(fits: bool, unknown: impl FnOnce() -> tidemill_store::Error) -> Result<(), Failure> {
    if fits { Ok(()) } else { Err(unknown().into()) }
}

fn unknown(code: RefusalCode, message: String, hint: Option<&str>) -> tidemill_store::Error {
    tidemill_store::Error::Refused(Refusal { code, message, hint: hint.map(str::to_owned) })
}

/// Refuses what cannot be a project.
pub(crate) fn project(name: &str) -> Result<(), Failure> {
    possible(is_name(name), || tidemill_store::Error::unknown_project(name, None))
}

/// Refuses what cannot be a schedule.
pub(crate) fn schedule(name: &str) -> Result<(), Failure> {
    let message = || format!("schedule `{name}` does not exist");
    possible(is_name(name), || unknown(RefusalCode::UnknownSchedule, message(), None))
}

/// Refuses what cannot be a feed.
pub(crate) fn feed(name: &str) -> Result<(), Failure> {
    possible(is_name(name), || tidemill_store::Error::unknown_feed(name))
}

/// Refuses what cannot be a sync: its own id, or that of an attempt.
pub(crate) fn sync(id: &str) -> Result<(), Failure> {
    let fits =
        (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    possible(fits, || tidemill_store::Error::unknown_sync(id))
}

/// Refuses what cannot be a queue.
pub(crate) fn queue(name: &str) -> Result<(), Failure> {
    if is_name(name) {
        return Ok(());
    }
    let problem = Problem::new("unknown_queue", format!("queue `{name}` does not exist"));
    let problem = Box::new(Problem { hint: Some("tidemill queue list".to_owned()), ..problem });
    Err(Error::Refused { status: StatusCode::NOT_FOUND, problem }.into())
}

/// Refuses what cannot be a webhook.
pub(crate) fn hook(name: &str) -> Result<(), Failure> {
    let message = || format!("hook `{name}` does not exist");
    possible(is_name(name), || unknown(RefusalCode::UnknownHook, message(), Some("tidemill hook list")))
}

/// The first so many of a list, page by page. At least one page is asked for: it may be refused.
pub(crate) async fn listed<T, A: FromStr>(
    limit: usize,
    mut page: impl AsyncFnMut(Option<A>, Option<u16>) -> Result<Page<T>, Error>,
) -> Result<Vec<T>, Failure> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let rows = (limit.saturating_sub(items.len())).clamp(1, BATCH_MAX);
        let Page { items: more, next } = page(after, u16::try_from(rows).ok()).await?;
        items.extend(more);
        let Some(next) = next.filter(|_| items.len() < limit) else { break };
        let place = next.parse().map_err(|_| Error::Unreadable(format!("`{next}` is no place in this list")));
        after = Some(place?);
    }
    items.truncate(limit);
    Ok(items)
}
