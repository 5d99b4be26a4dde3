//! A store that is closed while others still use it: it ends, and takes nobody with it.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

use std::time::Duration;

use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Store};
use tidemill_testkit::door::{Kind, Stage};

/// Rounds of the race.
const ROUNDS: u64 = 60;

async fn a_store_closes_while_calls_are_on_their_way(kind: Kind) {
    let stage = Stage::open(kind).await;
    for round in 0..ROUNDS {
        let store = Store::open(&Options::new(stage.url.clone(), host_now)).await.expect("the store opens");
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { while store.now(None).await.is_ok() {} })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(500 * (round % 8))).await;
        tokio::time::timeout(Duration::from_secs(10), store.close()).await.expect("the store closes");
        for caller in callers {
            let ended = tokio::time::timeout(Duration::from_secs(40), caller).await;
            ended.expect("a caller learns of it").expect("a caller ends");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    a_store_closes_while_calls_are_on_their_way(Kind::Postgres).await;
}
