//! Large records: what is read at a time is bounded by bytes too.

use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_engine::sync::Replaced;
use tidemill_store::Built;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{again, consolidate, number, planned, work};

/// Bytes of each record here, at the least.
const RECORD: usize = 240_000;

/// Notes how many stones each batch of a consolidation has.
async fn log_batches(mill: &Mill) {
    let table = "CREATE TABLE batch_log (stones bigint NOT NULL)";
    mill.stage.plain.script(table).await.expect("the table is made");
    let trigger = match mill.stage.kind {
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
    mill.stage.plain.script(trigger).await.expect("the trigger is made");
}

/// A batch of consolidation has no more bytes than the bound, however many stones it might have.
pub(crate) async fn a_batch_of_large_records_is_bounded_by_bytes(kind: Kind) {
    let mill = Mill::open(kind, 120).await;
    mill.supplier.handle.behave(|behaviour| behaviour.padding_bytes = 240_000);
    let sync = planned(&mill, false).await;
    work(&mill).await;
    log_batches(&mill).await;
    assert_eq!(consolidate(&mill).await, 1);
    assert_eq!(again(&mill, &sync).await.consolidation_processed, 120);
    assert_eq!(number(&mill, "SELECT CAST(sum(stones) AS bigint) FROM batch_log").await, 120);
    let most = number(&mill, "SELECT CAST(max(stones) AS bigint) FROM batch_log").await;
    let bytes = usize::try_from(most).unwrap_or(usize::MAX) * RECORD;
    assert!(bytes <= READ_BYTES_MAX, "a batch has {most} stones, {bytes} bytes");
    mill.check_equal().await;

    // Pricing anew reads the same records under the same bound.
    let mut rules = mill.stage.store.rules().await.expect("the rules are listed");
    for rule in &mut rules {
        rule.priority += 1;
    }
    mill.syncs.add_rules(rules, Replaced::All, None).await.expect("the rules are replaced");
    let done = mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    assert_eq!((done.stones, done.rejected), (120, 0));
    mill.check_equal().await;
}

/// Records are read up to so many bytes, and one in any case; the others are named.
pub(crate) async fn open_records_are_read_up_to_so_many_bytes(kind: Kind) {
    let mill = Mill::open(kind, 40).await;
    mill.supplier.handle.behave(|behaviour| behaviour.padding_bytes = 240_000);
    planned(&mill, false).await;
    work(&mill).await;
    let ids: Vec<String> = mill.expected().into_keys().collect();
    let built = Built { mapper_version: 1, rules_version: 1 };
    for (bytes_max, most) in
        [(usize::MAX, 40), (READ_BYTES_MAX, READ_BYTES_MAX / RECORD), (1_000_000, 4), (1, 1)]
    {
        let stones = ids.clone();
        let read = mill.stage.store.write(move |mut tx| {
            Box::pin(async move { tx.open_stones(FEED, stones, built, bytes_max).await })
        });
        let open = read.await.expect("the records are read");
        assert!((1..=most).contains(&open.read.len()), "{} records for {bytes_max}", open.read.len());
        assert!(open.bytes <= bytes_max || open.read.len() == 1, "{} bytes for {bytes_max}", open.bytes);
        let mut all: Vec<String> =
            open.read.into_iter().map(|stone| stone.stone_id).chain(open.left).collect();
        all.sort();
        assert_eq!(all, ids, "for {bytes_max}");
    }
}
