//! Records that slip between two pages: no combination of a definition deletes them.

use super::fixture::{COLUMNS, TrustFixture, records};
use super::slipping_source::{Paging, Slip, SlippingSource};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::{ITEMS, TABLE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Divided {
    Not,
    Heatmap,
    Windows,
    Values,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trusted {
    Nothing,
    Total,
    /// A total that is not compared with the records.
    TotalWithoutRecount,
    /// A total, and records can be counted by their time of change.
    TotalAndChanges,
    Complete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    Twice,
    Replaced,
    LookedUp,
}

#[derive(Debug, Clone, Copy)]
struct Combination {
    paging: Paging,
    slip: Slip,
    divided: Divided,
    trusted: Trusted,
    deleted: Deleted,
}

impl Combination {
    fn total(self) -> &'static str {
        if self.paging.is_graphql() { "total_path: data.items.totalCount" } else { "total_path: total" }
    }

    /// Returns a key for a parameter, or for a variable of a GraphQL request.
    fn target(self, key: &str, name: &str) -> String {
        if self.paging.is_graphql() {
            format!("{key}_body_path: variables.{name}")
        } else {
            format!("{key}_param: {name}")
        }
    }

    fn partition(self) -> String {
        let (from, to) = (self.target("from", "n_from"), self.target("to", "n_to"));
        match self.divided {
            Divided::Not => "{type: none}".to_owned(),
            Divided::Heatmap => format!(
                "{{type: heatmap, field: n, kind: number, from: 0, to: 1000, {from}, {to}, count: {{{}}}}}",
                self.total()
            ),
            Divided::Windows => format!(
                "{{type: time_windows, field: at, format: unix, from: 1970-01-12, to: 1970-01-14, window: 1d, {}, {}}}",
                self.target("from", "at_from"),
                self.target("to", "at_to")
            ),
            Divided::Values if self.paging.is_graphql() => {
                "{type: values, body_path: variables.region_is, values: [east, west]}".to_owned()
            }
            Divided::Values => "{type: values, param: region_is, values: [east, west]}".to_owned(),
        }
    }

    fn definition(self, base_url: &str) -> String {
        let resource = if self.paging.is_graphql() {
            "{path: /graphql, graphql: {query: 'query { items }'}, data_selector: data.items.nodes, primary_key: id}"
        } else {
            "{path: /items, data_selector: data, primary_key: id}"
        };
        let trust = match self.trusted {
            Trusted::Nothing => "{repeats: true}".to_owned(),
            Trusted::Total | Trusted::TotalAndChanges => format!("{{{}}}", self.total()),
            Trusted::TotalWithoutRecount => format!("{{{}, recount: false}}", self.total()),
            Trusted::Complete => "{complete: true}".to_owned(),
        };
        let incremental = if self.trusted == Trusted::TotalAndChanges {
            let start = self.target("start", "updated_at_from");
            format!("incremental: {{cursor_path: updated_at, {start}}}\n")
        } else {
            String::new()
        };
        let deletes = match self.deleted {
            Deleted::Twice | Deleted::Replaced => "{threshold: 1}".to_owned(),
            Deleted::LookedUp if self.paging.is_graphql() => {
                "{threshold: 1, lookup: {body_path: variables.id_is, ids_max: 1}}".to_owned()
            }
            Deleted::LookedUp => "{threshold: 1, lookup: {param: id_is, ids_max: 1}}".to_owned(),
        };
        let write = if self.deleted == Deleted::Replaced { "  write_disposition: replace\n" } else { "" };
        format!(
            "version: 1\nfeed: {ITEMS}\nclient: {{base_url: '{base_url}', rate: 0}}\nresource: {resource}\n\
             paginator: {}\npartition: {}\ntrust: {trust}\ndeletes: {deletes}\n{incremental}\
             into:\n  table: {TABLE}\n  primary_key: id\n{write}  columns:\n{COLUMNS}",
            self.paging.paginator(),
            self.partition(),
        )
    }

    /// Whether the user has declared away all evidence.
    fn is_declared(self) -> bool {
        self.trusted == Trusted::Complete
    }
}

/// Outcome of a combination.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    /// Whether a record was on no page of two syncs that succeeded.
    is_skipped_twice: bool,
    is_deleted: bool,
}

/// Reads the source once as it is, and then twice while a record slips past.
async fn run(fixture: &TrustFixture, combination: Combination) -> Shown {
    let source = SlippingSource::serve(&fixture.api, combination.paging, combination.slip);
    fixture.apply_text(&combination.definition(&fixture.api.base_url)).await;
    let first = fixture.queue(true).await;
    let ended = fixture.base.settle(&first).await;
    assert_eq!(ended.status, RunState::Success, "{combination:?}: {}", ended.metadata);
    let all = fixture.rows("id <> 'r0000' AND id < 'r0041'").await;
    assert_eq!(all, 40, "{combination:?}: the first sync reads everything");
    let mut skipped: Option<Vec<String>> = None;
    for _ in 0..2 {
        source.arm();
        let run = fixture.queue(true).await;
        let ended = fixture.base.settle(&run).await;
        let now = if ended.status == RunState::Success { source.skipped() } else { Vec::new() };
        skipped = Some(match skipped {
            None => now,
            Some(before) => now.into_iter().filter(|id| before.contains(id)).collect(),
        });
    }
    let rows = fixture.rows("id <> 'r0000' AND id < 'r0041'").await;
    Shown { is_skipped_twice: skipped.is_some_and(|ids| !ids.is_empty()), is_deleted: rows < 40 }
}

/// Runs every combination of a paginator. Returns how many skipped a record twice, and how many of these declared
/// lists deleted it.
async fn run_all(kind: Kind, paging: Paging, divided: &[Divided]) -> (usize, usize) {
    let fixture = TrustFixture::open(kind, records(0)).await;
    let slips = if paging == Paging::Keyset {
        [Slip::HeadLeaves, Slip::KeyMoves]
    } else {
        [Slip::HeadLeaves, Slip::HeadLeavesAndTailJoins]
    };
    // On PostgreSQL the decisions are the same; the database only stores the evidence.
    let ways: &[Deleted] = match kind {
        Kind::Sqlite => &[Deleted::Twice, Deleted::Replaced, Deleted::LookedUp],
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => &[Deleted::Twice],
    };
    let (mut skipped, mut lost) = (0, 0);
    for slip in slips {
        for &divided in divided {
            for trusted in [
                Trusted::Nothing,
                Trusted::Total,
                Trusted::TotalWithoutRecount,
                Trusted::TotalAndChanges,
                Trusted::Complete,
            ] {
                for &way in ways {
                    let combination = Combination { paging, slip, divided, trusted, deleted: way };
                    // A table that is replaced has no incremental sync, and so no filter by the time of change.
                    if trusted == Trusted::TotalAndChanges && way == Deleted::Replaced {
                        continue;
                    }
                    let shown = run(&fixture, combination).await;
                    skipped += usize::from(shown.is_skipped_twice);
                    assert!(
                        !shown.is_deleted || combination.is_declared(),
                        "{combination:?} deletes a record that the source has"
                    );
                    lost += usize::from(shown.is_deleted);
                }
            }
        }
    }
    fixture.close().await;
    (skipped, lost)
}

/// Checks every combination of a paginator.
async fn check(kind: Kind, paging: Paging) {
    // One answer has nothing to divide.
    let divided: &[Divided] = if kind == Kind::Sqlite && paging != Paging::SinglePage {
        &[Divided::Not, Divided::Heatmap, Divided::Windows, Divided::Values]
    } else {
        &[Divided::Not]
    };
    let (skipped, lost) = run_all(kind, paging, divided).await;
    assert_eq!(skipped > 0, paging.may_skip(), "{paging:?}: {skipped} combinations skipped a record twice");
    assert_eq!(lost > 0, paging.may_skip(), "{paging:?}: {lost} declared lists deleted a record");
}

macro_rules! pagings {
    ($($test:ident => $paging:ident),+ $(,)?) => {
        $(pub(crate) async fn $test(kind: Kind) { check(kind, Paging::$paging).await; })+

        #[test]
        fn every_paginator_has_a_test() {
            assert_eq!([$(Paging::$paging),+].as_slice(), Paging::ALL.as_slice());
        }
    };
}

pagings! {
    record_that_slips_past_a_single_page_stays => SinglePage,
    record_that_slips_past_page_numbers_stays => PageNumber,
    record_that_slips_past_offsets_stays => Offset,
    record_that_slips_past_a_cursor_stays => Cursor,
    record_that_slips_past_a_link_stays => JsonLink,
    record_that_slips_past_a_cursor_in_a_header_stays => HeaderCursor,
    record_that_slips_past_a_url_in_a_header_stays => HeaderUrl,
    record_that_slips_past_a_link_in_a_header_stays => HeaderLink,
    record_that_slips_past_keys_stays => Keyset,
    record_that_slips_past_graphql_offsets_stays => GraphqlOffset,
    record_that_slips_past_a_graphql_connection_stays => GraphqlConnection,
    record_that_slips_past_a_recognised_list_stays => Auto,
}

/// Changes that cancel out while a list is read, in two full syncs. No evidence excludes them; a lookup does.
pub(crate) async fn changes_that_cancel_out_are_excluded_by_a_lookup_only(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(0)).await;
    for (paging, slip, trusted) in [
        (Paging::Offset, Slip::RecordMovesAsHeadLeaves, Trusted::Nothing),
        (Paging::PageNumber, Slip::HeadLeavesAndTailJoinsBriefly, Trusted::TotalAndChanges),
    ] {
        for (deleted, is_deleted) in [(Deleted::LookedUp, false), (Deleted::Twice, true)] {
            let combination = Combination { paging, slip, divided: Divided::Not, trusted, deleted };
            let shown = run(&fixture, combination).await;
            assert!(shown.is_skipped_twice, "{combination:?} skips a record twice");
            assert_eq!(shown.is_deleted, is_deleted, "{combination:?}");
        }
    }
    fixture.close().await;
}

/// A list by links with positions and without a total: rows stay, and the sync says how many and why.
pub(crate) async fn kept_rows_are_named_with_the_missing_evidence(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(0)).await;
    let combination = Combination {
        paging: Paging::JsonLink,
        slip: Slip::HeadLeaves,
        divided: Divided::Not,
        trusted: Trusted::Nothing,
        deleted: Deleted::Twice,
    };
    let source = SlippingSource::serve(&fixture.api, combination.paging, combination.slip);
    fixture.apply_text(&combination.definition(&fixture.api.base_url)).await;
    fixture.sync(true).await;
    source.arm();
    let sync = fixture.sync(true).await;
    assert_eq!(source.skipped(), ["r0010"]);
    assert_eq!((sync.state, sync.deleted, sync.absence_evidence), (SyncState::Completed, 0, None));
    assert_eq!(sync.absent_kept, 1);
    let note = sync.delete_note.expect("a note");
    for word in
        ["1 of 41 records were not seen", "does not count this list", "deletes.lookup", "complete: true"]
    {
        assert!(note.contains(word), "`{word}` is not in {note}");
    }
    let alerts = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'absence_unproven' AND resolved_at IS NULL";
    let open = || async { fixture.base.base.plain.number(alerts).await.expect("alerts are counted") };
    assert_eq!(open().await, 1);
    // The list was complete again, so nothing is missing.
    let source = SlippingSource::serve(&fixture.api, combination.paging, combination.slip);
    fixture.sync(true).await;
    assert_eq!((open().await, source.skipped().len()), (0, 0));
    fixture.close().await;
}
