//! What only PostgreSQL can do: a transaction that began first and commits last.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tidemill_core::RunId;
use tidemill_testkit::door::Kind;

use crate::Scene;
use crate::all::exactly;

async fn connect(scene: &Scene) -> PgConnection {
    PgConnection::connect(&scene.stage.url).await.expect("a second session")
}

async fn run(session: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(session).await.expect("the statements run");
}

fn append(run: &RunId, message: &str) -> String {
    format!("SELECT ops.append_event('{run}', 'info', '{message}')")
}

#[tokio::test]
async fn what_began_first_and_commits_last_is_told_once_and_holds_up_nobody() {
    let scene = Scene::open(Kind::Postgres).await;
    let (slow, quick) = (scene.running("shop").await, scene.running("shop").await);
    let mut live = scene.tap("/v1/stream?after=0", None).await;
    let mut leaving = scene.tap("/v1/stream?after=0", None).await;
    let mut told = live.places(6).await;
    assert_eq!(leaving.places(6).await, told);
    let mut session = connect(&scene).await;
    run(&mut session, &format!("BEGIN; {}", append(&slow, "begun early"))).await;
    for round in 0..5 {
        scene.say(&quick, round..round + 1).await;
        let place = (quick.clone(), 4 + i32::try_from(round).expect("small"));
        assert_eq!(live.place().await, place, "nobody waits for the slow one");
        // This reader comes back after each event, with the transaction still open.
        assert_eq!(leaving.place().await, place);
        let last = leaving.last.clone();
        leaving = scene.tap("/v1/stream", last.as_deref()).await;
        told.push(place);
    }
    let before = leaving.last.clone();
    drop(leaving);
    run(&mut session, "COMMIT").await;
    let late = (slow, 4);
    assert_eq!(live.place().await, late);
    let mut back = scene.tap("/v1/stream", before.as_deref()).await;
    assert_eq!(back.place().await, late);
    told.push(late);
    // And once is once: who comes back after it does not get it again.
    let last = back.last.clone();
    let mut again = scene.tap("/v1/stream", last.as_deref()).await;
    for tap in [&mut live, &mut back, &mut again] {
        tap.silent().await;
    }
    let mut all = scene.tap("/v1/stream?after=0", None).await;
    let mut expected = told.clone();
    expected.sort();
    exactly(&all.places(12).await, &expected);
    scene.stage.close().await;
}

#[tokio::test]
async fn what_is_rolled_back_is_never_told() {
    let scene = Scene::open(Kind::Postgres).await;
    let gone = scene.running("shop").await;
    let mut tap = scene.tap("/v1/stream?after=0", None).await;
    tap.places(3).await;
    let mut session = connect(&scene).await;
    run(&mut session, &format!("BEGIN; {}", append(&gone, "never"))).await;
    let other = scene.running("bank").await;
    assert_eq!(tap.places(3).await, [1, 2, 3].map(|seq| (other.clone(), seq)));
    run(&mut session, "ROLLBACK").await;
    scene.say(&gone, 0..1).await;
    let (_, event) = tap.next().await;
    assert_eq!((event.run_id, event.seq, event.message.as_str()), (gone, 4, "0"));
    scene.stage.close().await;
}

/// The transaction with the smaller number writes the later event of the same run: the run's order counts.
#[tokio::test]
async fn a_run_is_told_in_its_order_whatever_numbers_its_transactions_have() {
    let scene = Scene::open(Kind::Postgres).await;
    let shared = scene.running("shop").await;
    let mut live = scene.tap("/v1/stream?after=0", None).await;
    live.places(3).await;
    let begin = live.last.clone();
    let mut session = connect(&scene).await;
    run(&mut session, "BEGIN; SELECT pg_current_xact_id()").await;
    scene.say(&shared, 0..1).await;
    run(&mut session, &format!("{}; COMMIT", append(&shared, "second"))).await;
    let expected = [4, 5].map(|seq| (shared.clone(), seq));
    assert_eq!(live.places(2).await, expected);
    let mut back = scene.tap("/v1/stream", begin.as_deref()).await;
    assert_eq!(back.places(2).await, expected, "also where both are read at once");
    scene.stage.close().await;
}

/// More open transactions than an id can name: what came after them waits, and comes once.
#[tokio::test]
async fn a_hundred_open_transactions_lose_and_double_nothing() {
    let scene = Scene::open(Kind::Postgres).await;
    let told_run = scene.running("shop").await;
    let mut live = scene.tap("/v1/stream?after=0", None).await;
    let mut told = live.places(3).await;
    let mut sessions = Vec::new();
    for number in 0..100 {
        let mut session = connect(&scene).await;
        run(&mut session, "BEGIN; SELECT pg_current_xact_id()").await;
        sessions.push(session);
        if number % 10 == 0 {
            scene.say(&told_run, number..number + 1).await;
        }
    }
    for mut session in sessions.into_iter().rev() {
        run(&mut session, "COMMIT").await;
        session.close().await.expect("the session ends");
        if fastrand::u8(..10) == 0 {
            let last = live.last.clone();
            live = scene.tap("/v1/stream", last.as_deref()).await;
        }
    }
    told.extend(live.places(10).await);
    let expected: Vec<_> = (1..=13).map(|seq| (told_run.clone(), seq)).collect();
    assert_eq!(told, expected);
    live.silent().await;
    scene.stage.close().await;
}
