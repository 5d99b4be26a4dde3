//! Deletes the rows of vanished records. A record whose row the table refuses to delete stays active and is rejected;
//! the others are deleted.

use std::collections::BTreeSet;
use tidemill_core::Timestamp;
use tidemill_core::absence::AbsentRecords;
use tidemill_core::records::Stage;
use tidemill_store::{Error, FeedTables, NewReject, Tx};
use uuid::Uuid;

/// Most attempts to delete the rows of one call. Rows of one table can refer to each other, so a row that was refused
/// is tried again after the others. The next full sync tries the rest.
const ATTEMPTS_MAX: usize = 8;

/// Number of records in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DeleteCounts {
    /// Records that were active and are not any more.
    pub(super) deleted: u64,
    /// Records whose row the table refused to delete.
    pub(super) refused: usize,
}

/// Outcome of one attempt.
#[derive(Default)]
struct Attempt {
    deleted: u64,
    /// Records with the error of their row.
    refused: Vec<(String, Error)>,
}

/// Deletes the rows of these records in the transaction, and marks the records as absent.
pub(super) async fn delete_rows(
    tx: &mut Tx<'_>,
    tables: &FeedTables,
    sync: Uuid,
    gone: AbsentRecords,
    now: Option<Timestamp>,
) -> Result<DeleteCounts, Error> {
    let (mut deleted, mut refused, mut left) = (0, Vec::new(), gone.clone());
    for _ in 0..ATTEMPTS_MAX {
        let attempt = try_delete(tx, tables, &left, now).await?;
        let is_stuck = attempt.refused.len() == left.ids().len();
        deleted += attempt.deleted;
        refused = attempt.refused;
        left = left.filter(|id| refused.iter().any(|(record, _)| record == id));
        if left.is_empty() || is_stuck {
            break;
        }
    }
    for (record_id, error) in &refused {
        let payload = tx.row_key(&tables.feed, record_id).await?.unwrap_or_default();
        let reason = tx.describe_refusal(tables, error).await?;
        let reject = NewReject { record_id: record_id.clone(), stage: Stage::Delete, reason, payload };
        tx.reject(&tables.feed, sync, None, &reject, now).await?;
    }
    let refused: BTreeSet<&String> = refused.iter().map(|(record, _)| record).collect();
    let done: Vec<String> = gone.into_ids().into_iter().filter(|record| !refused.contains(record)).collect();
    if !done.is_empty() {
        tx.accept(&tables.feed, done, Some(sync)).await?;
    }
    Ok(DeleteCounts { deleted, refused: refused.len() })
}

/// Deletes rows. If the database refuses one, it is found by bisection, and the rest is deleted.
async fn try_delete(
    tx: &mut Tx<'_>,
    tables: &FeedTables,
    gone: &AbsentRecords,
    now: Option<Timestamp>,
) -> Result<Attempt, Error> {
    let (mut attempt, mut spans) = (Attempt::default(), vec![(0, gone.ids().len())]);
    while let Some((from, to)) = spans.pop() {
        tx.savepoint().await?;
        match tx.delete_records(tables, gone.slice(from..to), now).await {
            Ok(deleted) => {
                tx.release_savepoint().await?;
                attempt.deleted += deleted;
            }
            Err(error) if error.is_bad_value() => {
                tx.rollback_to_savepoint().await?;
                if to - from == 1 {
                    attempt.refused.push((gone.ids()[from].clone(), error));
                } else {
                    let middle = from.midpoint(to);
                    spans.extend([(middle, to), (from, middle)]);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(attempt)
}
