//! A database that goes away and comes back under open streams.

use std::time::Duration;

use tidemill_core::RunId;
use tidemill_store::{Class, Holder};
use tidemill_testkit::cluster::{Cluster, Durability, Options, Shutdown};
use tidemill_testkit::door::{Stage, at, info};

use crate::Scene;

/// Appends under a key until the database has it: asked twice, it is one event.
async fn keep_saying(scene: &Scene, run: &RunId, number: usize) {
    loop {
        let event = info(&number.to_string()).keyed(number.to_string());
        match scene.stage.store.append_events(run.clone(), vec![event], Holder::default(), Some(at(1))).await
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
async fn streams_outlive_a_restart_and_a_crash_of_the_database() {
    let options = Options { durability: Durability::Full, ..Options::default() };
    let mut cluster = tokio::task::spawn_blocking(move || Cluster::start(&options))
        .await
        .expect("the task ends")
        .expect("a server starts");
    let stage = Stage::open_on(&cluster.url("postgres")).await;
    stage.store.create_project("shop", vec!["staging".to_owned()], None).await.expect("a project");
    let scene = Scene::on(stage);
    let run = scene.running("shop").await;
    let mut all = scene.tap("/v1/stream?after=0", None).await;
    let mut one = scene.tap(&format!("/v1/runs/{run}/stream"), None).await;
    all.places(3).await;
    one.places(3).await;
    let mut number = 0;
    for shutdown in [Shutdown::Fast, Shutdown::Immediate, Shutdown::Immediate] {
        let writing = async {
            for _ in 0..30 {
                keep_saying(&scene, &run, number).await;
                number += 1;
            }
        };
        let restarting = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(40));
            cluster.restart(shutdown).expect("the server comes back");
            cluster
        });
        let ((), back) = tokio::join!(writing, restarting);
        cluster = back.expect("the task ends");
        for tap in [&mut all, &mut one] {
            for seq in number - 30..number {
                assert_eq!(tap.next().await.1.message, seq.to_string());
            }
        }
    }
    all.silent().await;
    one.silent().await;
    scene.stage.close().await;
}
