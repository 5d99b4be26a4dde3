//! A database restart under open streams.

use std::time::Duration;

use tidemill_core::RunId;
use tidemill_store::{Class, Holder};
use tidemill_testkit::cluster::{Cluster, Durability, Options, Shutdown};
use tidemill_testkit::interface::{Fixture, at, info};

use crate::LiveFixture;

/// Appends an event under a key until the database has stored it.
async fn append_until_stored(fixture: &LiveFixture, run: &RunId, number: usize) {
    loop {
        let event = info(&number.to_string()).keyed(number.to_string());
        match fixture.base.store.append_events(run.clone(), vec![event], Holder::default(), Some(at(1))).await
        {
            Ok(ids) => {
                assert!(ids[0].is_some(), "the run is held");
                return;
            }
            Err(error) => {
                assert_eq!(error.class(), Class::Transient, "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_survive_restart_and_crash_of_the_database() {
    let options = Options { durability: Durability::Full, ..Options::default() };
    let mut cluster = tokio::task::spawn_blocking(move || Cluster::start(&options))
        .await
        .expect("the task ends")
        .expect("a server starts");
    let base = Fixture::open_on(&cluster.url("postgres")).await;
    base.store.create_project("shop", vec!["staging".to_owned()], None).await.expect("a project");
    let fixture = LiveFixture::on(base);
    let run = fixture.running("shop").await;
    let mut all = fixture.reader("/v1/stream?after=0", None).await;
    let mut one = fixture.reader(&format!("/v1/runs/{run}/stream"), None).await;
    all.positions(3).await;
    one.positions(3).await;
    let mut number = 0;
    for shutdown in [Shutdown::Fast, Shutdown::Immediate, Shutdown::Immediate] {
        let writing = async {
            for _ in 0..30 {
                append_until_stored(&fixture, &run, number).await;
                number += 1;
            }
        };
        let restarting = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(40));
            cluster.restart(shutdown).expect("the server restarts");
            cluster
        });
        let ((), back) = tokio::join!(writing, restarting);
        cluster = back.expect("the task ends");
        for reader in [&mut all, &mut one] {
            for seq in number - 30..number {
                assert_eq!(reader.next().await.1.message, seq.to_string());
            }
        }
    }
    all.check_silent().await;
    one.check_silent().await;
    fixture.base.close().await;
}
