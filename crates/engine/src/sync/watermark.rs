//! The watermark that a completed sync sets: the end of its time window, or a number that its records have passed.

use tidemill_core::Timestamp;
use tidemill_core::feed::{CursorUnit, RunType, number_watermark};
use tidemill_core::records::{Sync, WatermarkChange};
use tidemill_core::time::MICROS_MIN;
use tidemill_feeds::rest::time_of;
use tidemill_store::{Error, Tx};
use uuid::Uuid;

/// Sets the watermark after a sync and records the change. Returns the new watermark; `None` if no value is safe, so
/// that the next sync reads all records.
///
/// A watermark of the same definition never falls, except for a number that a full sync does not find. After a change
/// of the definition, the watermark may have another unit or belong to another list, so it is replaced.
pub(super) async fn advance_watermark(
    tx: &mut Tx<'_>,
    sync: &Sync,
    now: Option<Timestamp>,
) -> Result<Option<Timestamp>, Error> {
    let locked = tx.lock_feed(&sync.feed).await?;
    let unit = locked.as_ref().map_or(CursorUnit::Time, |record| record.feed.cursor_unit());
    let before = locked.and_then(|feed| feed.watermark).map(|mark| mark.last_updated_at);
    let previous = tx.sync_before(sync).await?;
    let is_comparable = previous.as_ref().is_none_or(|previous| previous.definition == sync.definition);
    let kept = before.filter(|_| is_comparable || sync.run_type == RunType::Incremental);
    let after = match unit {
        CursorUnit::Time => kept.max(Some(sync.updated_to)),
        CursorUnit::Number => {
            let earlier = match previous.filter(|_| is_comparable) {
                Some(previous) => largest_number(tx, previous.run_id).await?,
                None => None,
            };
            let kept = kept.and_then(|mark| unit.number(mark));
            let read = largest_number(tx, sync.run_id).await?;
            // A watermark cannot hold a number below this one.
            number_watermark(sync.run_type, kept, earlier, read)
                .filter(|number| *number >= MICROS_MIN)
                .map(time_of)
        }
    };
    if after.is_none() && before.is_none() {
        return Ok(None);
    }
    let lowered = "the list has no number this high, or the definition has changed";
    let note = match (sync.advance, after < before) {
        (true, _) => Some("advanced past failed partitions"),
        (false, true) => Some(lowered),
        (false, false) => None,
    };
    let change = WatermarkChange {
        changed_at: sync.updated_to,
        before,
        after,
        run_id: Some(sync.run_id),
        by: "sync".to_owned(),
        note: note.map(str::to_owned),
    };
    tx.set_watermark(&sync.feed, &change, now).await?;
    Ok(after)
}

/// Returns the largest number of the cursor in the records of a sync.
async fn largest_number(tx: &mut Tx<'_>, sync: Uuid) -> Result<Option<i64>, Error> {
    let partitions = tx.partitions(sync).await?;
    Ok(partitions.iter().filter_map(|partition| partition.cursor_max).max())
}
