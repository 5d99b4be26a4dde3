//! Transactions of many callers are committed together, and each fails alone.

use crate::fixture::{KernelFixture, at};
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunFilter};
use tidemill_store::{Error, RefusalCode, Store};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Queues a run with this ref, and then fails if requested.
async fn step(store: Store, number: usize, fails: bool) -> (usize, Result<(), Error>) {
    let mut request = QueueRun::new("shop", "staging");
    request.git_ref = Some(format!("ref-{number:03}"));
    let run = RunId::new(at(0), Uuid::new_v4());
    let done = store.write(move |mut tx| {
        Box::pin(async move {
            tx.queue_run(&request, &run, Some(at(0))).await?;
            if fails { Err(Error::refused(RefusalCode::BadValue, "no")) } else { Ok(()) }
        })
    });
    (number, done.await)
}

#[tokio::test]
async fn failed_transaction_is_rolled_back_alone() {
    for fails in [|n: usize| n.is_multiple_of(3), |n: usize| !n.is_multiple_of(3), |_: usize| true] {
        let fixture = KernelFixture::new().await;
        let mut steps: JoinSet<_> =
            (0..60).map(|number| step(fixture.store.clone(), number, fails(number))).collect();
        while let Some(answered) = steps.join_next().await {
            let (number, answer) = answered.unwrap();
            assert_eq!(answer.is_err(), fails(number), "step {number}: {answer:?}");
        }
        let filter = RunFilter { limit: 100, ..RunFilter::default() };
        let runs = fixture.store.runs(filter).await.unwrap();
        let mut kept: Vec<String> = runs.into_iter().filter_map(|run| run.git_ref).collect();
        kept.sort();
        let wanted: Vec<String> =
            (0..60).filter(|number| !fails(*number)).map(|number| format!("ref-{number:03}")).collect();
        assert_eq!(kept, wanted);
    }
}
