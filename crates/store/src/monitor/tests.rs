//! Tests of the task monitor.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

fn passes(count: &Arc<AtomicU32>) -> u32 {
    count.fetch_add(1, Ordering::SeqCst) + 1
}

#[tokio::test(start_paused = true)]
async fn panicking_pass_is_restarted_and_recovers() {
    let (monitor, count) = (TaskMonitor::default(), Arc::new(AtomicU32::new(0)));
    let (counted, seen) = (count.clone(), monitor.clone());
    let task = monitor.spawn(LoopOptions::new("tested"), move || {
        let (count, seen) = (counted.clone(), seen.clone());
        async move {
            match passes(&count) {
                1 => panic!("broken row"),
                2 => {
                    let state = seen.loops().remove(0);
                    assert_eq!((state.name, state.restarts), ("tested", 1));
                    assert_eq!(state.failure.expect("it failed").error.detail, "panicked: broken row");
                    Ok(Next::After(Duration::ZERO))
                }
                3 => {
                    assert_eq!(seen.loops().remove(0).failure, None, "a good pass ends the failure");
                    Ok(Next::End)
                }
                _ => unreachable!("the loop has ended"),
            }
        }
    });
    task.await.expect("the loop ends by itself");
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert!(monitor.loops().is_empty(), "a loop that ended is not listed");
}

#[tokio::test(start_paused = true)]
async fn backoff_grows_to_its_limit_and_starts_over() {
    let options = LoopOptions::new("tested").backoff_max(Duration::from_secs(5));
    for _ in 0..100 {
        let first = options.backoff(1);
        assert!((BACKOFF_FIRST / 2..=BACKOFF_FIRST).contains(&first), "{first:?}");
        let last = options.backoff(u32::MAX);
        assert!((Duration::from_millis(2_500)..=Duration::from_secs(5)).contains(&last), "{last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_loop_does_not_delay_another() {
    let (monitor, count) = (TaskMonitor::default(), Arc::new(AtomicU32::new(0)));
    let bad =
        monitor.spawn(LoopOptions::new("bad"), || async { Err::<Next, _>(LoopError::new("no privilege")) });
    let counted = count.clone();
    let good = monitor.spawn(LoopOptions::new("good"), move || {
        let is_last = passes(&counted) == 1_000;
        async move { Ok(if is_last { Next::End } else { Next::After(Duration::from_millis(10)) }) }
    });
    good.await.expect("the good loop ends by itself");
    let state = monitor.loops().remove(0);
    assert_eq!(state.name, "bad");
    assert!(state.restarts < 20, "restarts are backed off: {}", state.restarts);
    let failure = state.failure.expect("it fails still");
    assert_eq!(failure.error.summary, "no privilege");
    assert!(failure.lasts >= Duration::from_secs(9), "since its first failure: {:?}", failure.lasts);
    bad.abort();
}

#[tokio::test(start_paused = true)]
async fn long_pass_counts_as_healthy_after_a_while() {
    let (monitor, count) = (TaskMonitor::default(), Arc::new(AtomicU32::new(0)));
    let counted = count.clone();
    let task = monitor.spawn(LoopOptions::new("role").long_pass(), move || {
        let number = passes(&counted);
        async move {
            assert!(number > 1, "the first pass breaks");
            std::future::pending().await
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(monitor.loops()[0].failure.is_some());
    tokio::time::sleep(LONG_PASS_HEALTHY_AFTER).await;
    assert_eq!(monitor.loops()[0].failure, None);
    assert_eq!(monitor.loops()[0].restarts, 1);
    task.abort();
}
