//! Large records: reads are also limited by bytes.

use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_engine::sync::ReplaceScope;
use tidemill_store::BuildVersions;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{consolidate, number, planned, reload, work};

/// Minimum length of each record in bytes.
const RECORD: usize = 240_000;

/// Logs how many records each batch of a consolidation has.
async fn log_batches(fixture: &SyncFixture) {
    let table = "CREATE TABLE batch_log (records bigint NOT NULL)";
    fixture.base.plain.script(table).await.expect("the table is made");
    let trigger = match fixture.base.kind {
        Kind::Sqlite => {
            "CREATE TRIGGER log_batch AFTER UPDATE OF consolidated ON partition_progress \
             BEGIN INSERT INTO batch_log VALUES (NEW.consolidated - OLD.consolidated); END"
        }
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "CREATE FUNCTION log_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO public.batch_log VALUES (NEW.consolidated - OLD.consolidated); RETURN NULL; END $$; \
             CREATE TRIGGER log_batch AFTER UPDATE OF consolidated ON partition_progress \
             FOR EACH ROW EXECUTE FUNCTION log_batch()"
        }
    };
    fixture.base.plain.script(trigger).await.expect("the trigger is made");
}

pub(crate) async fn batch_of_large_records_is_limited_by_bytes(kind: Kind) {
    let fixture = SyncFixture::open(kind, 120).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.padding_bytes = 240_000);
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    log_batches(&fixture).await;
    assert_eq!(consolidate(&fixture).await, 1);
    assert_eq!(reload(&fixture, &sync).await.consolidation_processed, 120);
    assert_eq!(number(&fixture, "SELECT CAST(sum(records) AS bigint) FROM batch_log").await, 120);
    let most = number(&fixture, "SELECT CAST(max(records) AS bigint) FROM batch_log").await;
    let bytes = usize::try_from(most).unwrap_or(usize::MAX) * RECORD;
    assert!(bytes <= READ_BYTES_MAX, "a batch has {most} records, {bytes} bytes");
    fixture.check_equal().await;

    // Repricing reads the same records with the same limit.
    let mut rules = fixture.base.store.rules().await.expect("the rules are listed");
    for rule in &mut rules {
        rule.priority += 1;
    }
    fixture.syncs.add_rules(rules, ReplaceScope::All, None).await.expect("the rules are replaced");
    let done = fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    assert_eq!((done.stones, done.rejected), (120, 0));
    fixture.check_equal().await;
}

/// At least one record is read; the others are returned by id.
pub(crate) async fn open_records_are_read_up_to_a_byte_limit(kind: Kind) {
    let fixture = SyncFixture::open(kind, 40).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.padding_bytes = 240_000);
    planned(&fixture, false).await;
    work(&fixture).await;
    let ids: Vec<String> = fixture.expected().into_keys().collect();
    let built = BuildVersions { mapper_version: 1, rules_version: 1 };
    for (bytes_max, most) in
        [(usize::MAX, 40), (READ_BYTES_MAX, READ_BYTES_MAX / RECORD), (1_000_000, 4), (1, 1)]
    {
        let (records, tables) = (ids.clone(), fixture.tables());
        let read = fixture.base.store.write(move |mut tx| {
            Box::pin(async move { tx.open_records(&tables, records, built, bytes_max).await })
        });
        let open = read.await.expect("the records are read");
        assert!((1..=most).contains(&open.read.len()), "{} records for {bytes_max}", open.read.len());
        assert!(open.bytes <= bytes_max || open.read.len() == 1, "{} bytes for {bytes_max}", open.bytes);
        let mut all: Vec<String> =
            open.read.into_iter().map(|record| record.record_id).chain(open.left).collect();
        all.sort();
        assert_eq!(all, ids, "for {bytes_max}");
    }
}
