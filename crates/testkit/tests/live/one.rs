//! One run's events.

use http::StatusCode;
use tidemill_core::run::FinalStatus;
use tidemill_store::Holder;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::{at, info};

use crate::tap::Said;
use crate::{Scene, Tap};

pub(crate) async fn a_run_is_told_from_its_beginning_and_then_live(scene: Scene) {
    let run = scene.running("shop").await;
    let mut tap = scene.tap(&format!("/v1/runs/{run}/stream"), None).await;
    for seq in 1..=3 {
        assert_eq!(tap.next().await.0, seq.to_string());
    }
    assert_eq!(tap.retry.as_deref(), Some("1000"));
    scene.say(&run, 0..5).await;
    let other = scene.running("bank").await;
    scene.say(&other, 0..5).await;
    scene.stage.finish(&run, FinalStatus::Success, serde_json::json!({}), at(2)).await;
    let mut told = Vec::new();
    for _ in 0..6 {
        told.push(tap.next().await.1);
    }
    assert_eq!(told, scene.stage.events(&run).await[3..]);
    tap.silent().await;
}

pub(crate) async fn a_reader_of_a_run_resumes_anywhere(scene: Scene) {
    let run = scene.running("shop").await;
    scene.say(&run, 0..450).await;
    let path = format!("/v1/runs/{run}/stream");
    for after in [0, 1, 199, 200, 201, 452] {
        let text = after.to_string();
        let by_query = format!("{path}?after={after}");
        for (path, header) in [(&path, Some(text.as_str())), (&by_query, None)] {
            let mut tap = scene.tap(path, header).await;
            for seq in after + 1..=453 {
                assert_eq!(tap.next().await.1.seq, seq);
            }
        }
    }
    // A reader that comes back by itself asks the same address again: what it got last goes before.
    let mut tap = scene.tap(&format!("{path}?after=0"), Some("450")).await;
    assert_eq!(tap.next().await.1.seq, 451);
}

pub(crate) async fn a_run_is_told_in_order_while_others_write_it(scene: Scene) {
    let run = scene.running("shop").await;
    let path = format!("/v1/runs/{run}/stream");
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (scene, path) = (scene.clone(), path.clone());
            tokio::spawn(async move {
                let mut tap = scene.tap(&path, None).await;
                for seq in 1..=163 {
                    assert_eq!(tap.next().await.1.seq, seq);
                }
            })
        })
        .collect();
    at_once(4, |writer| {
        let (scene, run) = (scene.clone(), run.clone());
        async move {
            for number in 0..40 {
                let event = info(&format!("{writer} {number}"));
                scene.stage.append(&run, vec![event], Holder::default(), at(1)).await;
            }
        }
    })
    .await;
    for reader in readers {
        reader.await.expect("the reader got everything, in order");
    }
}

pub(crate) async fn a_quiet_stream_says_that_it_lives(scene: Scene) {
    let run = scene.running("shop").await;
    let mut one = scene.tap(&format!("/v1/runs/{run}/stream?after=3"), None).await;
    let mut all = scene.tap("/v1/stream", None).await;
    assert!(matches!(all.said().await, Said::Comment));
    assert!(matches!(one.said().await, Said::Comment));
    // How far a quiet stream has come is an id like any other.
    let reached = all.last.clone().expect("an id");
    scene.say(&run, 0..1).await;
    assert_eq!(all.place().await, (run.clone(), 4));
    assert_eq!(scene.tap("/v1/stream", Some(&reached)).await.place().await, (run, 4));
}

pub(crate) async fn what_names_no_place_is_refused(scene: Scene) {
    let run = scene.running("shop").await;
    let one = format!("/v1/runs/{run}/stream");
    let long = "1.".repeat(4_000);
    for (path, bad) in [
        (one.as_str(), "x"),
        (&one, "-1"),
        (&one, "99999999999"),
        ("/v1/stream", "x"),
        ("/v1/stream", "-1"),
        ("/v1/stream", "1_2"),
        ("/v1/stream", "5.9"),
        ("/v1/stream", "1_2_3_Run"),
        ("/v1/stream", &long),
    ] {
        let (status, problem) = Tap::refusal(&scene.door, path, Some(bad)).await;
        assert_eq!((status, problem.code.as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"), "{bad}");
        assert_eq!(problem.faults[0].field, "Last-Event-ID");
    }
    for path in [format!("{one}?after=x"), format!("{one}?after=-1"), "/v1/stream?after=x".to_owned()] {
        assert_eq!(
            Tap::refusal(&scene.door, &path, None).await.0,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{path}"
        );
    }
    for path in ["/v1/runs/run-nobody/stream", "/v1/stream?project=nobody"] {
        assert_eq!(Tap::refusal(&scene.door, path, None).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

pub(crate) async fn a_stream_ends_when_the_server_closes(scene: Scene) {
    let run = scene.running("shop").await;
    let mut one = scene.tap(&format!("/v1/runs/{run}/stream?after=3"), None).await;
    let mut all = scene.tap("/v1/stream", None).await;
    scene.say(&run, 0..1).await;
    one.next().await;
    all.next().await;
    scene.app.close();
    assert!(matches!(one.said().await, Said::End));
    assert!(matches!(all.said().await, Said::End));
    let mut late = scene.tap("/v1/stream", None).await;
    assert!(matches!(late.said().await, Said::End), "who comes then is sent away");
}
