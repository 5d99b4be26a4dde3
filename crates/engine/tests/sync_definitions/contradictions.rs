//! Sources that contradict themselves: the sync fails and names the contradiction, or the table equals the source.

use tidemill_core::run::{Run, RunState};
use tidemill_supplier::{Change, ChangeKind, RestKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::RestFixture;

/// Runs a full sync of a lying source; returns its run.
async fn sync_contradictory(fixture: &RestFixture) -> Run {
    let run = fixture.queue(true).await;
    fixture.base.settle(&run).await
}

/// Checks that a sync failed with one of these sentences as evidence.
fn check_failed(run: &Run, evidence: &[&str]) {
    assert_eq!(run.status, RunState::Failed, "{}", run.metadata);
    let message = run.metadata.to_string();
    assert!(evidence.iter().any(|words| message.contains(words)), "{message}");
}

/// A cursor, URL or key that never moves would be an endless list.
pub(crate) async fn cursor_that_does_not_move_fails_the_sync((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, 120).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.stuck_cursor = true);
    check_failed(&sync_contradictory(&fixture).await, &["the same cursor", "the same page"]);
    fixture.base.supplier.handle.behave(|behaviour| behaviour.stuck_cursor = false);
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}

/// A source that ignores the place of the page would be an endless list too.
pub(crate) async fn page_that_repeats_fails_the_sync((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, 120).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.repeat_always = true);
    check_failed(
        &sync_contradictory(&fixture).await,
        &["the same cursor", "the same page", "reports a total of"],
    );
    fixture.base.supplier.handle.behave(|behaviour| behaviour.repeat_always = false);
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}

/// A short list without a total whose source ignores the page would be endless too; the honest source passes.
pub(crate) async fn small_page_that_repeats_fails_the_sync(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::PageNumber, 5).await;
    let text = fixture.definition(RestKind::PageNumber);
    let without_total = text.replace("{end: total, total_path: meta.total}", "{end: empty_page}");
    assert_ne!(text, without_total);
    fixture.apply(&without_total).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.repeat_always = true);
    check_failed(&sync_contradictory(&fixture).await, &["the same page"]);
    fixture.base.supplier.handle.behave(|behaviour| behaviour.repeat_always = false);
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}

/// A flag that promises more after the last record contradicts the empty page.
pub(crate) async fn flag_that_always_promises_more_fails_the_sync(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::Offset, 120).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.has_more = Some(true));
    check_failed(&sync_contradictory(&fixture).await, &["reports more records in `meta.has_more`"]);
    roles.stop().await;
}

/// A count that stays higher than the list fails the partition after all passes.
pub(crate) async fn count_that_stays_too_high_fails_the_sync((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, 60).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.count_lies_by = 5);
    check_failed(&sync_contradictory(&fixture).await, &["were read in", "reports a total of 65 records"]);
    roles.stop().await;
}

/// An empty page in the middle of a chain is passed over; nothing is lost.
pub(crate) async fn empty_page_in_the_middle_loses_nothing(kind: Kind) {
    for pagination in [RestKind::Cursor, RestKind::HeaderLink, RestKind::GraphqlConnection] {
        let fixture = RestFixture::open(kind, pagination, 120).await;
        let roles = fixture.base.roles();
        fixture.base.supplier.handle.behave(|behaviour| behaviour.empty_next = 3);
        fixture.sync(true).await;
        fixture.check_equal().await;
        roles.stop().await;
    }
}

/// A source that ignores the filter of changes returns all records: more work, and the same table.
pub(crate) async fn ignored_filter_of_changes_is_harmless((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, 120).await;
    let roles = fixture.base.roles();
    fixture.sync(false).await;
    fixture.base.supplier.handle.behave(|behaviour| behaviour.ignore_updated_since = true);
    fixture.base.supplier.handle.change(&Change::random(ChangeKind::Price, 20, 1)).expect("a change");
    fixture.sync(false).await;
    fixture.check_equal().await;
    roles.stop().await;
}
