//! Events of one run.

use http::StatusCode;
use tidemill_core::run::FinalStatus;
use tidemill_store::Holder;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::{at, info};

use crate::reader::StreamMessage;
use crate::{LiveFixture, StreamReader};

pub(crate) async fn run_stream_starts_with_past_events_then_live(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let mut reader = fixture.reader(&format!("/v1/runs/{run}/stream"), None).await;
    for seq in 1..=3 {
        assert_eq!(reader.next().await.0, seq.to_string());
    }
    assert_eq!(reader.retry.as_deref(), Some("1000"));
    fixture.append_numbers(&run, 0..5).await;
    let other = fixture.running("bank").await;
    fixture.append_numbers(&other, 0..5).await;
    fixture.base.finish(&run, FinalStatus::Success, serde_json::json!({}), at(2)).await;
    let mut received = Vec::new();
    for _ in 0..6 {
        received.push(reader.next().await.1);
    }
    assert_eq!(received, fixture.base.events(&run).await[3..]);
    reader.check_silent().await;
}

pub(crate) async fn run_reader_resumes_at_any_event(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    fixture.append_numbers(&run, 0..450).await;
    let path = format!("/v1/runs/{run}/stream");
    for after in [0, 1, 199, 200, 201, 452] {
        let text = after.to_string();
        let by_query = format!("{path}?after={after}");
        for (path, header) in [(&path, Some(text.as_str())), (&by_query, None)] {
            let mut reader = fixture.reader(path, header).await;
            for seq in after + 1..=453 {
                assert_eq!(reader.next().await.1.seq, seq);
            }
        }
    }
    // A reader that reconnects repeats the same URL; its last event id takes precedence.
    let mut reader = fixture.reader(&format!("{path}?after=0"), Some("450")).await;
    assert_eq!(reader.next().await.1.seq, 451);
}

pub(crate) async fn run_stream_keeps_order_with_concurrent_writers(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let path = format!("/v1/runs/{run}/stream");
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (fixture, path) = (fixture.clone(), path.clone());
            tokio::spawn(async move {
                let mut reader = fixture.reader(&path, None).await;
                for seq in 1..=163 {
                    assert_eq!(reader.next().await.1.seq, seq);
                }
            })
        })
        .collect();
    at_once(4, |writer| {
        let (fixture, run) = (fixture.clone(), run.clone());
        async move {
            for number in 0..40 {
                let event = info(&format!("{writer} {number}"));
                fixture.base.append(&run, vec![event], Holder::default(), at(1)).await;
            }
        }
    })
    .await;
    for reader in readers {
        reader.await.expect("the reader got everything, in order");
    }
}

pub(crate) async fn quiet_stream_sends_keep_alives(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let mut one = fixture.reader(&format!("/v1/runs/{run}/stream?after=3"), None).await;
    let mut all = fixture.reader("/v1/stream", None).await;
    assert!(matches!(all.next_message().await, StreamMessage::Comment));
    assert!(matches!(one.next_message().await, StreamMessage::Comment));
    // The position of a quiet stream is a resume id like any other.
    let reached = all.last.clone().expect("an id");
    fixture.append_numbers(&run, 0..1).await;
    assert_eq!(all.position().await, (run.clone(), 4));
    assert_eq!(fixture.reader("/v1/stream", Some(&reached)).await.position().await, (run, 4));
}

pub(crate) async fn malformed_resume_position_is_refused(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
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
        let (status, problem) = StreamReader::refusal(&fixture.interface, path, Some(bad)).await;
        assert_eq!((status, problem.code.as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"), "{bad}");
        assert_eq!(problem.faults[0].field, "Last-Event-ID");
    }
    for path in [format!("{one}?after=x"), format!("{one}?after=-1"), "/v1/stream?after=x".to_owned()] {
        assert_eq!(
            StreamReader::refusal(&fixture.interface, &path, None).await.0,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{path}"
        );
    }
    for path in ["/v1/runs/run-nobody/stream", "/v1/stream?project=nobody"] {
        assert_eq!(
            StreamReader::refusal(&fixture.interface, path, None).await.0,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}

pub(crate) async fn stream_ends_when_the_server_closes(fixture: LiveFixture) {
    let run = fixture.running("shop").await;
    let mut one = fixture.reader(&format!("/v1/runs/{run}/stream?after=3"), None).await;
    let mut all = fixture.reader("/v1/stream", None).await;
    fixture.append_numbers(&run, 0..1).await;
    one.next().await;
    all.next().await;
    fixture.app.close();
    assert!(matches!(one.next_message().await, StreamMessage::End));
    assert!(matches!(all.next_message().await, StreamMessage::End));
    let mut late = fixture.reader("/v1/stream", None).await;
    assert!(matches!(late.next_message().await, StreamMessage::End), "later connections are refused");
}
