//! PostgreSQL only: a transaction that began first and commits last.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tidemill_core::RunId;
use tidemill_testkit::interface::{Kind, at};

use crate::LiveFixture;
use crate::all_runs::exactly;

async fn connect(fixture: &LiveFixture) -> PgConnection {
    PgConnection::connect(&fixture.base.url).await.expect("a second session")
}

async fn run(session: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(session).await.expect("the statements run");
}

fn append(run: &RunId, message: &str) -> String {
    format!("SELECT ops.append_event('{run}', 'info', '{message}')")
}

#[tokio::test]
async fn late_commit_is_streamed_once_and_delays_no_other() {
    let fixture = LiveFixture::open(Kind::Postgres).await;
    let (slow, quick) = (fixture.running("shop").await, fixture.running("shop").await);
    let mut live = fixture.reader("/v1/stream?after=0", None).await;
    let mut leaving = fixture.reader("/v1/stream?after=0", None).await;
    let mut received = live.positions(6).await;
    assert_eq!(leaving.positions(6).await, received);
    let mut session = connect(&fixture).await;
    run(&mut session, &format!("BEGIN; {}", append(&slow, "begun early"))).await;
    for round in 0..5 {
        fixture.append_numbers(&quick, round..round + 1).await;
        let position = (quick.clone(), 4 + i32::try_from(round).expect("small"));
        assert_eq!(live.position().await, position, "nothing waits for the slow feed");
        // This reader reconnects after each event, with the transaction still open.
        assert_eq!(leaving.position().await, position);
        let last = leaving.last.clone();
        leaving = fixture.reader("/v1/stream", last.as_deref()).await;
        received.push(position);
    }
    let before = leaving.last.clone();
    drop(leaving);
    run(&mut session, "COMMIT").await;
    let late = (slow, 4);
    assert_eq!(live.position().await, late);
    let mut back = fixture.reader("/v1/stream", before.as_deref()).await;
    assert_eq!(back.position().await, late);
    received.push(late);
    // A reader that reconnects after the event does not get it again.
    let last = back.last.clone();
    let mut again = fixture.reader("/v1/stream", last.as_deref()).await;
    for reader in [&mut live, &mut back, &mut again] {
        reader.check_silent().await;
    }
    let mut all = fixture.reader("/v1/stream?after=0", None).await;
    let mut expected = received.clone();
    expected.sort();
    exactly(&all.positions(12).await, &expected);
    fixture.base.close().await;
}

#[tokio::test]
async fn rolled_back_events_are_never_streamed() {
    let fixture = LiveFixture::open(Kind::Postgres).await;
    let gone = fixture.running("shop").await;
    let mut reader = fixture.reader("/v1/stream?after=0", None).await;
    reader.positions(3).await;
    let mut session = connect(&fixture).await;
    run(&mut session, &format!("BEGIN; {}", append(&gone, "never"))).await;
    let other = fixture.running("bank").await;
    assert_eq!(reader.positions(3).await, [1, 2, 3].map(|seq| (other.clone(), seq)));
    run(&mut session, "ROLLBACK").await;
    fixture.append_numbers(&gone, 0..1).await;
    let (_, event) = reader.next().await;
    assert_eq!((event.run_id, event.seq, event.message.as_str()), (gone, 4, "0"));
    fixture.base.close().await;
}

/// The transaction with the smaller id writes the later event of the same run: the order of the run counts.
#[tokio::test]
async fn run_is_streamed_in_order_regardless_of_transaction_ids() {
    let fixture = LiveFixture::open(Kind::Postgres).await;
    let shared = fixture.running("shop").await;
    let mut live = fixture.reader("/v1/stream?after=0", None).await;
    live.positions(3).await;
    let begin = live.last.clone();
    let mut session = connect(&fixture).await;
    run(&mut session, "BEGIN; SELECT pg_current_xact_id()").await;
    fixture.append_numbers(&shared, 0..1).await;
    run(&mut session, &format!("{}; COMMIT", append(&shared, "second"))).await;
    let expected = [4, 5].map(|seq| (shared.clone(), seq));
    assert_eq!(live.positions(2).await, expected);
    let mut back = fixture.reader("/v1/stream", begin.as_deref()).await;
    assert_eq!(back.positions(2).await, expected, "also where both are read at once");
    fixture.base.close().await;
}

/// More open transactions than a resume id can name: later events wait, and arrive once.
#[tokio::test]
async fn hundred_open_transactions_lose_and_repeat_nothing() {
    let fixture = LiveFixture::open(Kind::Postgres).await;
    let told_run = fixture.running("shop").await;
    let mut live = fixture.reader("/v1/stream?after=0", None).await;
    let mut received = live.positions(3).await;
    let mut sessions = Vec::new();
    for number in 0..100 {
        let mut session = connect(&fixture).await;
        run(&mut session, "BEGIN; SELECT pg_current_xact_id()").await;
        sessions.push(session);
        if number % 10 == 0 {
            fixture.append_numbers(&told_run, number..number + 1).await;
        }
    }
    for mut session in sessions.into_iter().rev() {
        run(&mut session, "COMMIT").await;
        session.close().await.expect("the session ends");
        if fastrand::u8(..10) == 0 {
            let last = live.last.clone();
            live = fixture.reader("/v1/stream", last.as_deref()).await;
        }
    }
    received.extend(live.positions(10).await);
    let expected: Vec<_> = (1..=13).map(|seq| (told_run.clone(), seq)).collect();
    assert_eq!(received, expected);
    live.check_silent().await;
    fixture.base.close().await;
}

/// Steps of a batch that is finished in a transaction which stays open: they are streamed after its commit, in order.
#[tokio::test]
async fn late_batch_of_finished_runs_is_streamed_once() {
    let fixture = LiveFixture::open(Kind::Postgres).await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        let request = tidemill_core::run::QueueRun::new("shop", "staging");
        claimed.push(fixture.base.claimed(request, "ann", at(0)).await.run_id);
    }
    claimed.sort();
    let mut live = fixture.reader("/v1/stream?after=0", None).await;
    let mut received = live.positions(6).await;
    let mut session = connect(&fixture).await;
    let runs: Vec<&str> = claimed.iter().map(RunId::as_str).collect();
    let finish = format!(
        "BEGIN; SELECT ops.finish_runs('{{{}}}', '{{success,failed,success}}', \
         ARRAY['{{}}', '{{}}', '{{}}']::jsonb[], 'ann')",
        runs.join(",")
    );
    run(&mut session, &finish).await;
    let other = fixture.running("bank").await;
    received.extend(live.positions(3).await);
    assert_eq!(received[6..], [1, 2, 3].map(|seq| (other.clone(), seq)), "nothing waits for the batch");
    let before = live.last.clone();
    run(&mut session, "COMMIT").await;
    let expected: Vec<_> = claimed.iter().flat_map(|run| [3, 4].map(|seq| (run.clone(), seq))).collect();
    assert_eq!(live.positions(6).await, expected);
    live.check_silent().await;

    // A row of the batch is two events. A reader that left between them gets the second one only.
    let mut first = fixture.reader("/v1/stream", before.as_deref()).await;
    for number in 1..=6 {
        assert_eq!(first.position().await, expected[number - 1]);
        let last = first.last.clone();
        let mut resumed = fixture.reader("/v1/stream", last.as_deref()).await;
        assert_eq!(resumed.positions(6 - number).await, expected[number..], "after event {number}");
        resumed.check_silent().await;
    }
    fixture.base.close().await;
}
