//! The watermark of a feed whose cursor is a number, such as a sequence or a revision.
//!
//! A time has a clock: the next sync begins where this one was planned. A number has none. The largest number that a
//! sync has read says nothing about records on pages that it had read before: one of them may have changed in between
//! and got a smaller number. So the watermark follows one sync behind. A number that the previous sync has read was
//! assigned before this sync began, and this sync has read every record with such a number.
//!
//! Limit: numbers must only grow. If a restored source assigns numbers again, a full sync lowers the watermark, unless
//! the numbers have already passed it.

use super::RunType;

/// Returns the watermark after a sync; `None` if no number is safe, so that the next sync reads all records.
///
/// `before` is the watermark before it, `earlier` the largest number in the previous completed sync, and `read` the
/// largest number in this one. `before` and `earlier` must come from syncs of the same definition.
pub fn number_watermark(
    run_type: RunType,
    before: Option<i64>,
    earlier: Option<i64>,
    read: Option<i64>,
) -> Option<i64> {
    match run_type {
        // The changes since `before` may be none, so they say nothing about the highest number.
        RunType::Incremental => before.max(earlier),
        // The whole list has only lower numbers: another source, or one that was restored.
        RunType::Full => [before, earlier].into_iter().flatten().filter(|number| Some(*number) <= read).max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunType::{Full, Incremental};

    #[test]
    fn number_watermark_follows_one_sync_behind() {
        for (run_type, before, earlier, read, after) in [
            (Full, None, None, Some(500), None),
            (Full, None, Some(500), Some(502), Some(500)),
            (Incremental, Some(500), Some(502), Some(510), Some(502)),
            (Incremental, Some(502), Some(510), None, Some(510)),
            (Incremental, Some(510), None, None, Some(510)),
            (Incremental, Some(510), Some(400), Some(400), Some(510)),
            (Full, Some(510), Some(510), Some(510), Some(510)),
        ] {
            assert_eq!(number_watermark(run_type, before, earlier, read), after, "{run_type:?} {before:?}");
        }
    }

    #[test]
    fn full_sync_lowers_a_number_that_the_list_lacks() {
        // The record with the highest number was deleted.
        assert_eq!(number_watermark(Full, Some(500), Some(502), Some(501)), Some(500));
        // The source was restored, or another one is read now.
        assert_eq!(number_watermark(Full, Some(1_795_000_000_000_000), Some(9_000), Some(5_000)), None);
        assert_eq!(number_watermark(Full, Some(500), Some(500), None), None);
    }

    /// A source assigns numbers while syncs read it page by page. No change is lost in any order.
    #[test]
    fn number_watermark_loses_no_change_during_a_sync() {
        for seed in 0..300 {
            let mut state: u64 = seed;
            let mut random = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                usize::try_from(state >> 33).unwrap() % below
            };
            let (mut source, mut table): (Vec<i64>, Vec<i64>) = ((1..=12).collect(), vec![0; 12]);
            let (mut next, mut watermark, mut earlier) = (13, None, None);
            for _ in 0..6 {
                let since = watermark;
                let mut read = None;
                for index in 0..source.len() {
                    if random(2) == 0 {
                        let changed = random(source.len());
                        (source[changed], next) = (next, next + 1);
                    }
                    if since.is_none_or(|since| source[index] >= since) {
                        table[index] = source[index];
                        read = read.max(Some(source[index]));
                    }
                }
                let run_type = if since.is_some() { Incremental } else { Full };
                watermark = number_watermark(run_type, watermark, earlier, read);
                earlier = read;
                let lost = (0..12)
                    .find(|index| table[*index] != source[*index] && Some(source[*index]) <= watermark);
                assert_eq!(lost, None, "seed {seed}: {table:?} of {source:?}, watermark {watermark:?}");
            }
        }
    }
}
